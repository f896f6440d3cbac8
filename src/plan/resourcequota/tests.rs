mod recount;

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::charges::{Charges, LONGEST, WHILE};
use super::usage::{self, PodSum};
use super::wakes;
use super::*;
use crate::model::{Interner, PersistentVolumeClaim, Pod, Record, Service};

const NOW: &str = "2026-01-01T00:00:00Z";

#[test]
fn numbers_that_no_arithmetic_holds_stop_nothing() {
    let huge = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {
        "memory": "9223372036854775807", "cpu": "nonsense"}}}]}});
    let quota = of(&["requests.memory", "requests.cpu", "pods"]);
    let used = used_by(&quota, &[pod(&huge), pod(&huge)]);
    assert_eq!(used["requests.memory"], "18446744073709551614");
    assert_eq!((used["requests.cpu"].as_str(), used["pods"].as_str()), ("0", "2"));
    let odd = decode::<ResourceQuota>(&json!({"spec": {"hard": {"pods": "nonsense"}},
        "status": {"hard": {"pods": "nonsense"}, "used": {"pods": "odd"}}}));
    let count = [(Source::Pods, Count::Used(amounts(&[("pods", "1")])))];
    let status = plan_of(&odd, &count, amounts(&[("pods", "1")])).status.unwrap();
    assert_eq!((status.hard, status.used), (map(&[("pods", "nonsense")]), map(&[("pods", "1")])));
}

#[test]
fn pods_of_a_template_are_summed_at_once() {
    let pod = pod(&json!({}));
    let mut sum = PodSum::new(start());
    let shared: Arc<Pod> = Arc::new(pod);
    (0..1000).for_each(|_| sum.add(&shared));
    let used = sum.of(&of(&["pods", "cpu"]));
    assert_eq!((used["pods"].to_string(), used["cpu"].to_string()), ("1k".to_owned(), "100".to_owned()));
}
