//! The order of waiting requests: one of each owner in turn, the requests of one owner in their order.

use std::collections::{BTreeMap, VecDeque};

/// Waiting requests by owner.
///
/// An owner that begins to wait joins the end of the round. It therefore waits for at most one request of each
/// other owner, however many those have waiting.
#[derive(Debug)]
pub(super) struct RoundRobin<O, W> {
    /// The requests of each owner that has any, with their tickets, in the order of arrival.
    waiting: BTreeMap<O, VecDeque<(u64, W)>>,
    /// The same owners, in the order of their turns.
    round: VecDeque<O>,
    issued: u64,
}

impl<O, W> Default for RoundRobin<O, W> {
    fn default() -> Self {
        RoundRobin { waiting: BTreeMap::new(), round: VecDeque::new(), issued: 0 }
    }
}

impl<O: Clone + Ord, W> RoundRobin<O, W> {
    /// Adds a request and returns its ticket.
    pub(super) fn join(&mut self, owner: &O, request: W) -> u64 {
        self.issued += 1;
        let requests = self.waiting.entry(owner.clone()).or_default();
        if requests.is_empty() {
            self.round.push_back(owner.clone());
        }
        requests.push_back((self.issued, request));
        self.issued
    }

    /// The request whose turn it is. Only [`pop`](Self::pop) and [`leave`](Self::leave) change that.
    pub(super) fn next(&self) -> Option<&(u64, W)> {
        self.waiting.get(self.round.front()?)?.front()
    }

    /// Whether it is the turn of this request.
    pub(super) fn is_next(&self, ticket: u64) -> bool {
        self.next().is_some_and(|(next, _)| *next == ticket)
    }

    /// Removes the request whose turn it is, since it has passed. Its owner goes to the end of the round.
    pub(super) fn pop(&mut self) -> Option<W> {
        let owner = self.round.pop_front()?;
        let requests = self.waiting.get_mut(&owner)?;
        let (_, request) = requests.pop_front()?;
        if requests.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.round.push_back(owner);
        }
        Some(request)
    }

    /// Removes a cancelled request. Its owner keeps its place in the round for its other requests.
    pub(super) fn leave(&mut self, owner: &O, ticket: u64) {
        let Some(requests) = self.waiting.get_mut(owner) else { return };
        // Tickets rise.
        if let Ok(at) = requests.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            requests.remove(at);
        }
        if requests.is_empty() {
            self.waiting.remove(owner);
            self.round.retain(|other| other != owner);
        }
    }

    /// Whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.round.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut RoundRobin<char, &'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn each_owner_has_one_request_in_each_round() {
        let mut queue = RoundRobin::default();
        for (owner, request) in [('a', "a1"), ('a', "a2"), ('a', "a3"), ('b', "b1"), ('b', "b2"), ('c', "c1")]
        {
            queue.join(&owner, request);
        }
        assert_eq!(drain(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert!(queue.is_empty() && queue.waiting.is_empty());
    }

    #[test]
    fn an_owner_with_repeated_requests_gets_no_more_turns_than_one_that_waits() {
        let mut queue = RoundRobin::default();
        for _ in 0..4 {
            queue.join(&'a', "batch");
        }
        let mut passed = Vec::new();
        for _ in 0..4 {
            queue.join(&'b', "single");
            passed.extend([queue.pop().unwrap(), queue.pop().unwrap()]);
        }
        assert_eq!(passed, ["batch", "single", "batch", "single", "batch", "single", "batch", "single"]);
    }

    #[test]
    fn a_request_that_gives_up_does_not_cost_its_owner_the_turn() {
        let mut queue = RoundRobin::default();
        let first = queue.join(&'a', "a1");
        let second = queue.join(&'a', "a2");
        queue.join(&'a', "a3");
        let only = queue.join(&'b', "b1");
        queue.join(&'c', "c1");
        queue.leave(&'a', first);
        assert_eq!(queue.next().map(|(ticket, _)| *ticket), Some(second));
        queue.leave(&'b', only);
        queue.leave(&'b', only);
        assert_eq!(drain(&mut queue), ["a2", "c1", "a3"]);
    }

    #[test]
    fn no_request_waits_for_more_than_one_of_each_other_owner() {
        let mut rng = fastrand::Rng::with_seed(17);
        for _ in 0..200 {
            let mut queue = RoundRobin::default();
            // The requests in the queue, each with those that passed since it became its owner's first.
            let mut first_since: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
            let mut tickets: Vec<(u8, u64)> = Vec::new();
            for _ in 0..300 {
                let owner = rng.u8(..6);
                match rng.u8(..10) {
                    0..5 => {
                        first_since.entry(owner).or_default();
                        tickets.push((owner, queue.join(&owner, owner)));
                    }
                    5 if !tickets.is_empty() => {
                        let (owner, ticket) = tickets.swap_remove(rng.usize(..tickets.len()));
                        queue.leave(&owner, ticket);
                        if tickets.iter().all(|(other, _)| *other != owner) {
                            first_since.remove(&owner);
                        }
                    }
                    _ => {
                        let Some((ticket, _)) = queue.next() else { continue };
                        let ticket = *ticket;
                        let owner = queue.pop().unwrap();
                        let oldest =
                            tickets.iter().filter(|(other, _)| *other == owner).map(|(_, it)| *it).min();
                        assert_eq!(oldest, Some(ticket), "one owner's requests pass in their order");
                        tickets.retain(|(_, other)| *other != ticket);
                        first_since.remove(&owner);
                        for (waiting, passed) in &mut first_since {
                            passed.push(owner);
                            let times = passed.iter().filter(|other| **other == owner).count();
                            assert!(times <= 1, "{owner} passed {times} times while {waiting} waited");
                        }
                        if tickets.iter().any(|(other, _)| *other == owner) {
                            first_since.insert(owner, Vec::new());
                        }
                    }
                }
            }
        }
    }
}
