//! The outcome of the plan for a rolling update of ReplicationControllers.

use super::{Objects, annotate, bump_generation, change, remove_annotations};
use crate::model::{Interner, ReplicaSet, Template};
use crate::plan::rolling_update::bookkeeping::{HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, moved};
use crate::plan::rolling_update::job::{Side, Write};
use crate::plan::rolling_update::report::Report;
use crate::plan::rolling_update::request::STEP_AT;

/// The names of the two controllers of an update.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The one that is synced.
    pub own: &'a str,
    /// The other one.
    pub target: &'a str,
}

impl<'a> Names<'a> {
    /// The name of one of the two.
    pub fn of(&self, side: Side) -> &'a str {
        match side {
            Side::Own => self.own,
            Side::Target => self.target,
        }
    }
}

/// Carries out a write, with the report of its plan.
///
/// # Errors
/// When a template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn apply(
    write: &Write,
    report: Option<&Report>,
    names: Names<'_>,
    objects: &mut Objects,
) -> Result<(), serde_json::Error> {
    let now = objects.now;
    let target = objects.replica_sets.get(names.target).cloned();
    let replica_sets = &mut objects.replica_sets;
    match write {
        Write::Report => change(replica_sets, names.own, |own| {
            if let Some(report) = report {
                own.status.conditions = report.conditions(own, now);
            }
        }),
        Write::Annotate(side, annotations) => change(replica_sets, names.of(*side), |stored| {
            for (key, value) in annotations {
                match value {
                    Some(value) => annotate(&mut stored.annotations, key, value),
                    None => remove_annotations(&mut stored.annotations, &[*key]),
                }
            }
        }),
        Write::Resize(side, to) => change(replica_sets, names.of(*side), |stored| {
            resize(stored, *to);
            annotate(&mut stored.annotations, STEP_AT, &now.to_string());
        }),
        Write::StepAside { key, value } => {
            let Some(mut template) = target.map(|target| target.template.clone()) else { return Ok(()) };
            template = with_label(&template, key, &moved(value))?;
            change(replica_sets, names.target, |new| {
                resize(new, 0);
                new.selector = new.selector.with_label(key, &moved(value));
                new.template = template;
                annotate(&mut new.annotations, STEP_AT, &now.to_string());
                annotate(&mut new.annotations, HANDING_OVER, value);
            });
        }
        Write::TakeOver { key, value, replicas } => {
            let Some(target) = target else { return Ok(()) };
            let template = with_label(&target.template, key, value)?;
            change(replica_sets, names.own, |old| {
                resize(old, *replicas);
                old.selector = target.selector.with_label(key, value);
                old.template = template;
                remove_annotations(&mut old.annotations, &[ORIGINAL_REPLICAS, NEXT_CONTROLLER]);
                annotate(&mut old.annotations, STEP_AT, &now.to_string());
            });
        }
        Write::Delete(side) => drop(replica_sets.remove(names.of(*side))),
    }
    Ok(())
}

fn resize(controller: &mut ReplicaSet, to: i32) {
    controller.replicas = to;
    bump_generation(&mut controller.meta);
}

fn with_label(template: &Template, key: &str, value: &str) -> Result<Template, serde_json::Error> {
    let labels = template.labels.iter().chain([(key, value)]).collect();
    Template::decode(&template.with_labels(&labels)?, &mut Interner::default())
}
