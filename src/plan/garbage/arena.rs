//! Where the graph keeps its records: many values of one size, without an allocation each.
//!
//! A `Vec` that doubles would hold up to twice the memory; this grows by blocks. What is freed is used again, and never
//! returned: a graph that was large once keeps its blocks.

use std::ops::{Index, IndexMut};

/// How many values a block has.
const BLOCK: usize = 1024;

/// Values with numbers as their addresses.
#[derive(Debug)]
pub(super) struct Arena<T> {
    blocks: Vec<Box<[T]>>,
    used: u32,
    free: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { blocks: Vec::new(), used: 0, free: Vec::new() }
    }
}

impl<T: Copy + Default> Arena<T> {
    /// Keeps a value.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            let at = self.used;
            self.used += 1;
            if at as usize / BLOCK == self.blocks.len() {
                self.blocks.push(vec![T::default(); BLOCK].into_boxed_slice());
            }
            at
        });
        self[at] = value;
        at
    }

    /// Frees a value. Its number may be given out again.
    pub(super) fn remove(&mut self, at: u32) {
        self[at] = T::default();
        self.free.push(at);
    }

    /// The numbers that have been given out, the freed ones included.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.used
    }

    /// About how many bytes all of it takes.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.blocks[at as usize / BLOCK][at as usize % BLOCK]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.blocks[at as usize / BLOCK][at as usize % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_numbers_are_used_again() {
        let mut arena = Arena::<u64>::default();
        let all: Vec<u32> = (0..3000).map(|value| arena.insert(value)).collect();
        assert!(all.iter().all(|at| arena[*at] == u64::from(*at)));
        arena.remove(all[7]);
        assert_eq!(arena.insert(99), 7);
        assert_eq!((arena[7], arena[8]), (99, 8));
        assert_eq!(arena.numbers(), 0..3000);
        assert!(arena.bytes() >= 3 * BLOCK * 8);
    }
}
