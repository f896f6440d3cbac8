//! Slow start: a few creations first, so that a quota that refuses them all costs one call, not 500.

/// The sizes of the batches in which `total` pods are created: 1, 2, 4, … until all are.
///
/// A batch is sent after the one before it has succeeded (upstream: `slowStartBatch`).
pub fn slow_start_batches(total: usize) -> impl Iterator<Item = usize> {
    let mut left = total;
    let mut next = 1usize;
    std::iter::from_fn(move || {
        let size = next.min(left);
        left -= size;
        next = next.saturating_mul(2);
        (size > 0).then_some(size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_double_and_add_up() {
        assert_eq!(slow_start_batches(0).collect::<Vec<_>>(), [0; 0]);
        assert_eq!(slow_start_batches(1).collect::<Vec<_>>(), [1]);
        assert_eq!(slow_start_batches(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
        assert_eq!(slow_start_batches(500).sum::<usize>(), 500);
        assert_eq!(slow_start_batches(usize::MAX).take(3).collect::<Vec<_>>(), [1, 2, 4]);
    }
}
