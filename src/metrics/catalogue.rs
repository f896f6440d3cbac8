//! Registers metrics and keeps their descriptions, for the documentation and its tests.

use std::cell::RefCell;

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::version::COMMIT;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A histogram.
    Histogram,
}

impl Kind {
    /// Its name in Prometheus' text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// One sentence.
    pub help: &'static str,
}

/// A registry with descriptions.
pub(super) struct Catalogue<'a> {
    registry: &'a Registry,
    described: RefCell<Vec<Described>>,
}

impl<'a> Catalogue<'a> {
    pub(super) fn new(registry: &'a Registry) -> Self {
        Catalogue { registry, described: RefCell::default() }
    }

    /// All that was registered, by name.
    pub(super) fn described(&self) -> Vec<Described> {
        let mut all = self.described.borrow().clone();
        all.sort_by_key(|metric| metric.name);
        all
    }

    pub(super) fn counters(&self, name: &'static str, help: &'static str, labels: &[&str]) -> IntCounterVec {
        let metric = IntCounterVec::new(Opts::new(name, help), labels);
        self.register(name, help, Kind::Counter, labels, metric)
    }

    pub(super) fn counter(&self, name: &'static str, help: &'static str) -> IntCounter {
        self.register(name, help, Kind::Counter, &[], IntCounter::new(name, help))
    }

    pub(super) fn gauges(&self, name: &'static str, help: &'static str, labels: &[&str]) -> IntGaugeVec {
        self.register(name, help, Kind::Gauge, labels, IntGaugeVec::new(Opts::new(name, help), labels))
    }

    pub(super) fn gauge(&self, name: &'static str, help: &'static str) -> IntGauge {
        self.register(name, help, Kind::Gauge, &[], IntGauge::new(name, help))
    }

    pub(super) fn float_gauges(&self, name: &'static str, help: &'static str, labels: &[&str]) -> GaugeVec {
        self.register(name, help, Kind::Gauge, labels, GaugeVec::new(Opts::new(name, help), labels))
    }

    pub(super) fn histograms(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(name, help, Kind::Histogram, labels, HistogramVec::new(options, labels))
    }

    pub(super) fn histogram(&self, name: &'static str, help: &'static str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(name, help, Kind::Histogram, &[], Histogram::with_opts(options))
    }

    /// The build of this program. Other components of Kubernetes report it under this name; there the version is
    /// that of Kubernetes, and here ours. Values that the build does not know stay empty.
    pub(super) fn build_info(&self) {
        let labels = [
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
        ];
        let info = self.gauges("kubernetes_build_info", "1, with the version in the labels.", &labels);
        let version = concat!("v", env!("CARGO_PKG_VERSION"));
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
        info.with_label_values(&[major, minor, version, COMMIT, "", "", "", "rustc", platform.as_str()])
            .set(1);
    }

    /// Registers a metric of ours. Two of one name are a mistake in this folder, which every test would
    /// show.
    fn register<C: Collector + Clone + 'static>(
        &self,
        name: &'static str,
        help: &'static str,
        kind: Kind,
        labels: &[&str],
        metric: prometheus::Result<C>,
    ) -> C {
        let metric = metric.expect("the name, labels and buckets are literals of this folder");
        self.registry.register(Box::new(metric.clone())).expect("each metric is registered once");
        let labels = labels.iter().map(ToString::to_string).collect();
        self.described.borrow_mut().push(Described { name, kind, labels, help });
        metric
    }
}
