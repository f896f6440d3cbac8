//! The simulation: first that it can be believed, then some of what it says.

use windlass::sim::run::run;
use windlass::sim::scenario::Scenario;

#[test]
fn the_same_seed_twice_is_the_same_history() {
    for seed in 1..6 {
        let scenario = Scenario::new(seed);
        let (first, second) = (run(&scenario, true).unwrap(), run(&scenario, true).unwrap());
        let differs = first.lines.iter().zip(&second.lines).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((first.digest, first.lines.len()), (second.digest, second.lines.len()), "seed {seed}");
        assert!(first.writes > 10, "seed {seed}: {} writes", first.writes);
    }
}

#[test]
fn whatever_a_seed_brings_nothing_breaks() {
    for seed in 1..16 {
        let scenario = Scenario::new(seed);
        let outcome = run(&scenario, false).unwrap();
        assert!(outcome.failure.is_none(), "{scenario}\n{outcome}");
    }
}
