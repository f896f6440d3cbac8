//! The rolling update that the daemon carries out, in a toy namespace: two ReplicationControllers, their controller, and
//! pods that become ready when the test says so.

mod cases;
mod refusals;
mod world;

pub use world::World;

/// Plays a sequence of [`super::rolling_update`] through requests, conditions and writes.
#[track_caller]
pub fn check(start: &str, desired: i32, unavailable_and_surge: &str, expected: &str) {
    let (old, new) = start.split_once('+').unwrap_or((start, "0"));
    let (unavailable, surge) = unavailable_and_surge.split_once('/').unwrap();
    let mut world = World::new(old.parse().unwrap(), new.parse().unwrap(), desired);
    world.request(&[("max-surge", surge), ("max-unavailable", unavailable), ("cleanup", "Preserve")]);
    let mut played = Vec::new();
    for look in expected.split_whitespace() {
        let ready =
            look.split_once('(').map(|(_, count)| count.trim_end_matches(')').parse::<usize>().unwrap());
        world.controllers_act();
        world.make_ready(ready.unwrap_or(usize::MAX));
        let resize = world.next_resize().unwrap_or_else(|| "-".to_owned());
        played.push(ready.map_or(resize.clone(), |ready| format!("{resize}({ready})")));
    }
    assert_eq!(played.join(" "), expected, "{start} to {desired}, {unavailable_and_surge}");
    world.run();
    let (old, new) = (world.rc("old").unwrap(), world.rc("new").unwrap());
    assert_eq!((old.replicas, new.replicas), (0, desired));
    assert_eq!((&old.annotations.len(), &new.annotations.len()), (&0, &0), "{old:?} {new:?}");
    assert_eq!(world.reason("old"), "False Complete");
}
