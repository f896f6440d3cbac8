//! Whether a toleration tolerates a taint (upstream: `Toleration.ToleratesTaint`).

use crate::model::Taint;
use crate::model::tolerations::Toleration;

/// Whether a pod with this toleration may be where the taint is. The operators Lt and Gt are behind a gate that is off, and
/// tolerate nothing.
pub fn tolerates(toleration: Toleration<'_>, taint: &Taint) -> bool {
    let Toleration { key, operator, value, effect, seconds: _ } = toleration;
    (effect.is_empty() || effect == taint.effect.as_str())
        && (key.is_empty() || key == &*taint.key)
        && match operator {
            "" | "Equal" => value == &*taint.value,
            "Exists" => true,
            _ => false,
        }
}
