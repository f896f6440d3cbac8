//! The metrics of the controller of quotas.

use prometheus::IntGaugeVec;

use super::catalogue::Catalogue;

/// Metrics of the controller of quotas.
pub struct QuotaMetrics {
    /// Resources that it watches itself, `{state}`: `synced`, `listing`, or `broken`.
    pub resources: IntGaugeVec,
}

impl QuotaMetrics {
    pub(super) fn new(catalogue: &Catalogue<'_>) -> Self {
        QuotaMetrics {
            resources: catalogue.gauges(
                "windlass_quota_resources",
                "Resources that quotas name and that are watched for their number of objects, by state; those that the garbage \
                 collector watches are not among them. Broken ones cannot be listed, or have not answered for a minute.",
                &["state"],
            ),
        }
    }
}
