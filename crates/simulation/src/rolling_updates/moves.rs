//! The writes of an update: sizes (RU1 to RU3, RU6), bookkeeping (RU4, RU11), fields (RU5), deletions (RU7) and the
//! hand-over (RU8).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::judge::{Judge, Write};
use super::scenario::Cleanup;
use super::truth::{
    self, BOOKKEEPING, DESIRED, Facts, HANDING_OVER, ORIGINAL, REQUEST, SOURCE, STEP_AT, Snapshot, Terms,
    annotation, selects,
};
use crate::engine::breach::Breach;
use crate::engine::objects::{name, number, uid};

/// An update at one moment.
struct Seen<'a> {
    old: &'a Facts,
    new: Option<&'a Facts>,
    terms: Terms,
}

/// The updates of a controller, at each moment that the author of a write could know.
fn seen<'a>(write: &Write<'a>, controller: &str) -> Vec<Seen<'a>> {
    let mut all = Vec::new();
    for state in &write.known {
        for (old, new) in state.pairs(controller) {
            all.extend(Terms::read(old, new).map(|terms| Seen { old, new, terms }));
        }
    }
    all
}

/// An object without what an update may change.
fn rest(object: &Value, is_hand_over: bool) -> Value {
    let mut rest = object.clone();
    for field in ["resourceVersion", "generation", "managedFields", "annotations"] {
        rest["metadata"].as_object_mut().map(|fields| fields.remove(field));
    }
    let of_hand_over: &[&str] = if is_hand_over { &["selector", "template"] } else { &[] };
    for field in of_hand_over.iter().chain(&["replicas"]) {
        rest["spec"].as_object_mut().map(|fields| fields.remove(*field));
    }
    // The API server copies the labels of the template where there are none.
    rest["metadata"].as_object_mut().map(|fields| fields.remove("labels"));
    rest.as_object_mut().map(|fields| fields.remove("status"));
    rest
}

/// The annotations that no update writes.
fn foreign(object: &Value) -> Value {
    let mut all = object["metadata"]["annotations"].clone();
    if let Some(all) = all.as_object_mut() {
        all.retain(|key, _| !BOOKKEEPING.contains(&&**key));
    }
    if all.as_object().is_some_and(serde_json::Map::is_empty) { Value::Null } else { all }
}

/// Whether a request names the UID and the version that it was computed from.
fn is_exact(body: &Value, of: &Value) -> bool {
    let (uid, version) = (&of["metadata"]["uid"], &of["metadata"]["resourceVersion"]);
    let has = |path: &str, value: &Value| {
        let operations = body.as_array().map(Vec::as_slice).unwrap_or_default();
        operations.iter().any(|operation| operation["path"] == path && operation["value"] == *value)
    };
    let of_merge = &body["metadata"];
    let of_deletion = &body["preconditions"];
    (has("/metadata/uid", uid) && has("/metadata/resourceVersion", version))
        || [of_merge, of_deletion].iter().any(|one| one["uid"] == *uid && one["resourceVersion"] == *version)
}

fn size(object: &Value) -> i64 {
    number(object, "/spec/replicas")
}

impl Judge {
    /// RU5, and then the invariants of the kind of write.
    pub(super) fn edit(&self, write: &Write<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        if !is_exact(&write.call.body, before) {
            return Err(write.breach("RU5", "a write does not name UID and version"));
        }
        let is_hand_over = before["spec"]["selector"] != after["spec"]["selector"];
        if rest(before, is_hand_over) != rest(after, is_hand_over) || foreign(before) != foreign(after) {
            return Err(write.breach("RU5", format!("something else is changed: {before} to {after}")));
        }
        if is_hand_over {
            return match annotation(after, HANDING_OVER) {
                Some(value) => step_aside(write, before, after, value),
                None => take_over(write, before, after),
            };
        }
        match size(before) == size(after) {
            true => bookkeeping(write, before, after),
            false => self.resize(write, before, after),
        }
    }

    /// A resize that one of the updates of the controller allows.
    fn resize(&self, write: &Write<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        let noted = annotation(after, STEP_AT).and_then(|noted| noted.parse::<Timestamp>().ok());
        if !noted.is_some_and(|noted| write.may_be_sent_at(noted)) {
            return Err(write.breach("RU4", "a resize does not note its time"));
        }
        let mut breach =
            write.breach("RU6", "a controller is resized without a request, or while it is paused");
        let all = seen(write, name(before));
        for is_rollback in [false, true] {
            let going: Vec<&Seen<'_>> = all
                .iter()
                .filter(|seen| seen.terms.is_rollback == is_rollback && !seen.terms.is_paused)
                .collect();
            // One that has changed its target is another update.
            let update = |seen: &&Seen<'_>| {
                (name(&seen.old.object).to_owned(), seen.old.get(REQUEST).map(str::to_owned))
            };
            let mut updates: Vec<_> = going.iter().map(update).collect();
            updates.dedup();
            for one in updates {
                let going: Vec<&Seen<'_>> =
                    going.iter().filter(|seen| update(seen) == one).copied().collect();
                match self.resize_of(write, before, size(after), &going, is_rollback) {
                    Ok(()) => return Ok(()),
                    Err(found) => breach = found,
                }
            }
        }
        Err(breach)
    }

    /// RU1, RU2 and RU3 of one update in one direction.
    fn resize_of(
        &self,
        write: &Write<'_>,
        before: &Value,
        to: i64,
        going: &[&Seen<'_>],
        is_rollback: bool,
    ) -> Result<(), Breach> {
        let from = size(before);
        let olds: Vec<&Facts> = going.iter().map(|seen| seen.old).collect();
        let news: Vec<&Facts> = going.iter().filter_map(|seen| seen.new).collect();
        let is_old = olds.first().is_some_and(|old| name(&old.object) == name(before));
        let (growing, shrinking) = if is_rollback { (&olds, &news) } else { (&news, &olds) };
        let least = |of: &[&Facts]| of.iter().map(|facts| facts.size).min().unwrap_or_default();
        let terms = || going.iter().map(|seen| seen.terms);
        let max_total = terms().map(|terms| terms.max_total).max().unwrap_or_default();
        let min_available = terms().map(|terms| terms.min_available).min().unwrap_or_default();
        let has = |of: &[&Facts], key| of.iter().any(|facts| facts.get(key).is_some());
        let is_a_target = has(&news, SOURCE) && has(&news, DESIRED);
        if !has(&olds, ORIGINAL) || !is_rollback && !is_a_target {
            return Err(write.breach("RU4", "a controller is resized before the bookkeeping is written"));
        }
        let has_settled =
            |facts: &[&Facts], is: fn(&Facts) -> bool| facts.is_empty() || facts.iter().any(|one| is(one));
        if !has_settled(growing, |one| one.has_grown) || !has_settled(shrinking, |one| one.has_shrunk) {
            return Err(write.breach("RU3", "a resize follows before the pods of the earlier one"));
        }
        let is_growing = is_old == is_rollback;
        // A user may have deleted the new controller, with its pods.
        let is_gone = is_rollback && going.iter().any(|seen| seen.new.is_none());
        let other = match is_growing {
            true if is_gone => 0,
            true => least(shrinking),
            false => least(growing),
        };
        let first = terms().map(|terms| terms.desired).min().unwrap_or_default();
        let last = terms().map(|terms| terms.desired).max().unwrap_or_default();
        match (is_growing, to > from) {
            (true, true) if to + other > max_total && !(other == 0 && to <= last) => {
                Err(write.breach("RU2", format!("{to} and {other} pods are more than {max_total}")))
            }
            (true, true) if to > last => {
                Err(write.breach("RU2", format!("{to} pods where {last} are wanted")))
            }
            (true, false) if other > 0 || to < first => {
                Err(write.breach("RU3", format!("the growing controller shrinks to {to}")))
            }
            (false, true) => Err(write.breach("RU3", "the shrinking controller grows")),
            (true, _) => Ok(()),
            (false, false) => {
                let available = growing.iter().map(|facts| facts.available).max().unwrap_or_default();
                // Pods of the shrinking one count whether they are available or not: what it has lost blocks nothing.
                if available + to < min_available {
                    let what =
                        format!("{to} pods and {available} available ones are fewer than {min_available}");
                    return Err(write.breach("RU1", what));
                }
                let grown = growing.first().and_then(|one| self.resized.get(uid(&one.object)));
                let period = terms().map(|terms| terms.period).min().unwrap_or_default();
                // Annotations have whole seconds.
                match grown
                    .is_some_and(|grown| (write.at.saturating_sub(*grown)).as_secs() as i64 + 1 < period)
                {
                    true => Err(write.breach("RU3", format!("{period} s after new pods are not over"))),
                    false => Ok(()),
                }
            }
        }
    }

    /// RU7: what is deleted has no pods, is not needed, and is what was observed.
    pub(super) fn deletion(&self, write: &Write<'_>, object: &Value) -> Result<(), Breach> {
        if !is_exact(&write.call.body, object) {
            return Err(write.breach("RU7", "a deletion does not name UID and version"));
        }
        let all = seen(write, name(object));
        let pods = write.of(name(object)).map(|facts| facts.live).min().unwrap_or_default();
        if size(object) > 0 || pods > 0 {
            return Err(
                write.breach("RU7", format!("a controller of {} with {pods} pods is deleted", size(object)))
            );
        }
        let is_over = |seen: &Seen<'_>| {
            let Seen { old, new, terms } = seen;
            if name(&old.object) == name(object) {
                return terms.cleanup == Cleanup::Delete && !terms.is_rollback && !terms.is_paused;
            }
            let is_handed_over =
                new.is_some_and(|new| new.get(HANDING_OVER).is_some()) && old.get(ORIGINAL).is_none();
            (terms.is_rollback && !terms.is_paused) || is_handed_over
        };
        let ended: Vec<&Seen<'_>> = all.iter().filter(|seen| is_over(seen)).collect();
        let is_old = ended.first().is_some_and(|seen| name(&seen.old.object) == name(object));
        let survivor = |seen: &Seen<'_>| if is_old { seen.new.cloned() } else { Some(seen.old.clone()) };
        let wanted = ended.iter().map(|seen| seen.terms.desired).min();
        let Some(wanted) = wanted else {
            return Err(write.breach("RU7", "a controller is deleted in no update that ends so"));
        };
        let live =
            ended.iter().filter_map(|seen| survivor(seen)).map(|facts| facts.live).max().unwrap_or_default();
        let is_marked = |seen: &&Seen<'_>| {
            seen.new.is_some_and(|new| new.get(SOURCE).is_some() && new.get(STEP_AT).is_some())
        };
        if live < wanted {
            return Err(write.breach("RU7", format!("the survivor has {live} of {wanted} pods")));
        }
        match is_old && !ended.iter().any(is_marked) {
            true => Err(write.breach("RU4", "OLD is deleted before NEW is known as the survivor")),
            false => Ok(()),
        }
    }
}

/// RU8, first write: NEW, complete, wants no pods and selects none.
fn step_aside(write: &Write<'_>, before: &Value, after: &Value, value: &str) -> Result<(), Breach> {
    let all = seen(write, name(before));
    let may = |seen: &Seen<'_>| {
        seen.terms.cleanup == Cleanup::KeepName && !seen.terms.is_rollback && seen.old.size == 0
    };
    let available = write.of(name(before)).map(|facts| facts.available).max().unwrap_or_default();
    let desired = all.iter().filter(|seen| may(seen)).map(|seen| seen.terms.desired).min();
    if desired.is_none_or(|desired| available < desired || size(before) < desired) || size(after) != 0 {
        return Err(write.breach("RU8", "pods are handed over that are not complete, or need not be"));
    }
    let labels = &before["spec"]["template"]["metadata"]["labels"];
    let adopts = |state: &&Snapshot| state.of_replica_sets.iter().any(|selector| selects(selector, labels));
    if write.known.iter().all(adopts) {
        return Err(write.breach("RU8", "pods are handed over that a ReplicaSet would adopt"));
    }
    let mut selector = before["spec"]["selector"].clone();
    let key =
        selector.as_object().and_then(|pairs| Some(pairs.iter().find(|pair| pair.1 == value)?.0.clone()));
    let mut template = before["spec"]["template"].clone();
    if let Some(key) = key {
        selector[&key] = json!(format!("{value}-moved"));
        template["metadata"]["labels"][&key] = json!(format!("{value}-moved"));
    }
    match after["spec"]["selector"] == selector && after["spec"]["template"] == template {
        true => Ok(()),
        false => Err(write.breach("RU8", format!("NEW steps aside with {}", after["spec"]))),
    }
}

/// RU8, second write: OLD gets what NEW had, while nobody has the pods.
fn take_over(write: &Write<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
    let all = seen(write, name(before));
    let matches = |seen: &&Seen<'_>| {
        let Some(new) = seen.new else { return false };
        let Some(value) = new.get(HANDING_OVER) else { return false };
        let [mut selector, mut template] =
            [&new.object["spec"]["selector"], &new.object["spec"]["template"]].map(Value::clone);
        let moved = format!("{value}-moved");
        let pairs = selector.as_object().cloned().unwrap_or_default();
        for (key, _) in pairs.iter().filter(|pair| *pair.1 == *moved) {
            selector[key] = json!(value);
            template["metadata"]["labels"][key] = json!(value);
        }
        after["spec"]["selector"] == selector
            && after["spec"]["template"] == template
            && size(after) == seen.terms.desired
            && annotation(after, ORIGINAL).is_none()
            && annotation(after, STEP_AT).is_some()
    };
    if !all.iter().any(|seen| matches(&seen)) {
        return Err(write.breach("RU8", format!("OLD takes something else over: {}", after["spec"])));
    }
    let left = all.iter().filter_map(|seen| seen.new).map(|new| new.live).min().unwrap_or_default();
    match left {
        0 => Ok(()),
        left => Err(write.breach("RU8", format!("NEW still owns {left} pods when OLD takes them over"))),
    }
}

/// RU4 and RU11: what is written once and stays until the end, and what is removed then.
fn bookkeeping(write: &Write<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
    let is_removed = |key| annotation(before, key).is_some() && annotation(after, key).is_none();
    for key in BOOKKEEPING.into_iter().filter(|key| annotation(before, key) != annotation(after, key)) {
        let (was, is) = (annotation(before, key), annotation(after, key));
        let all = seen(write, name(before));
        let is_new = |seen: &&Seen<'_>| name(&seen.old.object) != name(before);
        let is_right = match (key, was, is) {
            (_, Some(_), None) => is_removed(REQUEST) || is_removed(SOURCE),
            (ORIGINAL, None, Some(is)) => is == size(before).to_string(),
            (STEP_AT, None, Some(_)) => all.iter().any(|seen| is_new(&seen)),
            _ => false,
        };
        if !is_right {
            return Err(write.breach("RU4", format!("{key} is changed from {was:?} to {is:?}")));
        }
    }
    let left = |keys: &[&'static str]| keys.iter().copied().find(|key| annotation(after, key).is_some());
    if is_removed(REQUEST) {
        if let Some(key) = left(&BOOKKEEPING[..11]).filter(|key| *key != HANDING_OVER) {
            return Err(write.breach("RU11", format!("an update ends, and {key} stays")));
        }
        let all = seen(write, name(before));
        let own = all.iter().filter(|seen| name(&seen.old.object) == name(before));
        let mut ended = own.filter(|seen| has_ended(seen));
        return match ended.next() {
            Some(_) => Ok(()),
            None => Err(write.breach("RU11", "the request is removed before its end")),
        };
    }
    if is_removed(SOURCE) {
        if let Some(key) = left(&[DESIRED, STEP_AT]) {
            return Err(write.breach("RU11", format!("an update ends, and {key} stays on NEW")));
        }
        let source = annotation(before, SOURCE).unwrap_or_default();
        let is_over = write.known.iter().any(|state| {
            let of = |facts: &&Facts| truth::source_of(&facts.object) == source;
            let old = state.facts.values().find(of);
            old.is_none_or(|old| old.get(REQUEST).is_none() && old.get(ORIGINAL).is_none() && old.size == 0)
        });
        if !is_over {
            return Err(write.breach("RU11", "NEW loses its bookkeeping before the end"));
        }
    }
    Ok(())
}

/// Whether nothing of an update is left to do.
fn has_ended(seen: &Seen<'_>) -> bool {
    let Seen { old, new, terms } = seen;
    match new {
        _ if terms.is_rollback => new.is_none_or(Facts::is_going) && old.size == terms.desired,
        None => terms.cleanup == Cleanup::KeepName && old.get(ORIGINAL).is_none(),
        Some(new) => {
            terms.cleanup == Cleanup::Preserve
                && old.size == 0
                && new.size == terms.desired
                && new.available >= terms.desired
        }
    }
}
