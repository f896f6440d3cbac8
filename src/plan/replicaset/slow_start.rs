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

/// The largest batch of a StatefulSet (`MaxBatchSize`).
const LARGEST: u64 = 500;

/// The batch of a position where such batches, of at most 500, cover the pods that exist, too: one that cannot be created
/// holds up those behind its batch, and not those beside it.
pub fn batch_of(position: u64) -> u64 {
    // 1 + 2 + … + 256.
    const DOUBLED: u64 = 511;
    match position {
        ..DOUBLED => u64::from((position + 1).ilog2()),
        _ => 9 + (position - DOUBLED) / LARGEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_in_batches_that_double_up_to_the_largest() {
        let sizes: Vec<usize> =
            (0..12).map(|batch| (0..3000).filter(|position| batch_of(*position) == batch).count()).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500, 500]);
        assert_eq!([0, 1, 2, 3, 6, 7].map(batch_of), [0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn batches_double_and_add_up() {
        assert_eq!(slow_start_batches(0).collect::<Vec<_>>(), [0; 0]);
        assert_eq!(slow_start_batches(1).collect::<Vec<_>>(), [1]);
        assert_eq!(slow_start_batches(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
        assert_eq!(slow_start_batches(500).sum::<usize>(), 500);
        assert_eq!(slow_start_batches(usize::MAX).take(3).collect::<Vec<_>>(), [1, 2, 4]);
    }
}
