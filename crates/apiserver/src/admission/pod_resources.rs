//! The requests and limits of a pod (component-helpers `resource/helpers.go`, KEP-753): all containers and sidecars
//! together, or while an init container runs, that one and the sidecars before it, whichever is more.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity::Quantity;

/// Amounts by the name of the resource.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// The quantities of a map such as `resources.requests`.
pub(super) fn amounts(map: &Value) -> Amounts {
    let parsed = |(name, amount): (&String, &Value)| Some((name.clone(), Quantity::of(amount)?));
    map.as_object().into_iter().flatten().filter_map(parsed).collect()
}

/// The amounts under `requests` or `limits` of a container.
pub(super) fn of_container(container: &Value, field: &str) -> Amounts {
    amounts(&container["resources"][field])
}

pub(super) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *entry = entry.plus(*amount);
    }
}

fn raise(most: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let entry = most.entry(name).or_insert(amount);
        *entry = amount.max(*entry);
    }
}

/// The `requests` or `limits` of a whole pod.
pub(super) fn of_pod(spec: &Value, field: &str) -> Amounts {
    let containers = |list: &str| spec[list].as_array().into_iter().flatten();
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in containers("initContainers") {
        let own = of_container(container, field);
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &own);
            continue;
        }
        let mut during = sidecars.clone();
        add(&mut during, &own);
        raise(&mut most, during);
    }
    let mut sum = sidecars;
    containers("containers").for_each(|container| add(&mut sum, &of_container(container, field)));
    raise(&mut sum, most);
    // Resources of the pod as a whole take precedence over those of its containers (KEP-2837).
    sum.extend(amounts(&spec["resources"][field]));
    let mut overhead = amounts(&spec["overhead"]);
    if field == "limits" {
        overhead.retain(|name, _| sum.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut sum, &overhead);
    sum
}
