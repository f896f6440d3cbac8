//! The barrier before a finalizer of ours comes off: who refers to an owner, whatever the watches have shown until now.
//!
//! An orphaning deletion that ends before a dependent was seen has it deleted afterwards, as one whose owner is gone. So
//! each resource is asked, after the deletion was seen ([`super::referents`]).
//!
//! No worker waits here: a sync asks and ends, and the answer queues its owner again. One round serves all owners of a
//! namespace that wait when it begins, and those of other namespaces run beside it. An owner has its answer as soon as the
//! resources that work have answered and its patience with the others is over.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::Collector;
use super::referents::{Asked, Found, Referent};
use crate::model::Uid;
use crate::plan::garbage::graph::ResourceId;
use crate::runtime::reachability::OUT_OF_REACH;

/// How many lists are under way at a time: of resources that work, and of those that have failed. A resource that does not
/// answer must not use up the first.
const LISTS_AT_ONCE: (usize, usize) = (32, 8);

/// Which deletion ends when the answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deletion {
    /// One without the dependents.
    Orphaning,
    /// One after the dependents.
    Foreground,
}

/// What all resources say of an owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// The objects that refer to it.
    pub(super) referents: Vec<Referent>,
    /// Why there may be others; empty if all resources were read.
    pub(super) unread: Vec<Unread>,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    /// The API group.
    pub(super) group: String,
    /// What is wrong.
    pub(super) reason: String,
    /// When it was first missed.
    pub(super) since: Instant,
}

/// A question of an owner.
#[derive(Clone, Debug)]
struct Question {
    owner: Asked,
    deletion: Deletion,
    /// How long a resource that cannot be read is waited for: after it was first missed, or until an instant.
    patience: Patience,
    ticket: u64,
}

/// How long resources that cannot be read are waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The longest time since a resource was first missed.
    pub(super) with_each: Duration,
    /// The end for all of them.
    pub(super) until: Instant,
}

impl Patience {
    /// Until when something that was first missed then is waited for.
    pub(super) fn ends(&self, missed: Instant) -> Instant {
        self.until.min(missed + self.with_each)
    }
}

impl Question {
    fn key(&self) -> (Uid, Deletion) {
        (self.owner.uid.clone(), self.deletion)
    }
}

/// Where the question of an owner is.
#[derive(Debug)]
enum State {
    /// Asked, and perhaps under way.
    Asked(u64),
    Answered(Answer),
}

#[derive(Debug, Default)]
struct Owners {
    states: BTreeMap<(Uid, Deletion), State>,
    /// Questions that no round has begun with, by the namespace of the dependents; `None`: everywhere.
    waiting: BTreeMap<Option<String>, Vec<Question>>,
    last_ticket: u64,
}

/// The owners that wait.
pub(super) struct Barrier {
    owners: Mutex<Owners>,
    asked: Notify,
    /// Resources whose last look failed, each with the first of those in a row.
    failed: Mutex<BTreeMap<ResourceId, Instant>>,
    sound_lists: Semaphore,
    failed_lists: Semaphore,
}

impl Default for Barrier {
    fn default() -> Self {
        let (sound, failed) = LISTS_AT_ONCE;
        Barrier {
            owners: Mutex::default(),
            asked: Notify::new(),
            failed: Mutex::default(),
            sound_lists: Semaphore::new(sound),
            failed_lists: Semaphore::new(failed),
        }
    }
}

impl Barrier {
    /// Asks who refers to this owner, by what the API server has after this call. Once there is an answer the owner is
    /// queued again. A question that was asked before stands.
    pub(super) fn ask(
        &self,
        owner: Asked,
        namespace: Option<String>,
        deletion: Deletion,
        patience: Patience,
    ) {
        let mut owners = self.owners.lock();
        let ticket = owners.last_ticket + 1;
        let question = Question { owner, deletion, patience, ticket };
        let Entry::Vacant(vacant) = owners.states.entry(question.key()) else { return };
        vacant.insert(State::Asked(ticket));
        owners.last_ticket = ticket;
        owners.waiting.entry(namespace).or_default().push(question);
        self.asked.notify_one();
    }

    /// The answer, once.
    pub(super) fn take(&self, owner: &Uid, deletion: Deletion) -> Option<Answer> {
        let mut owners = self.owners.lock();
        let Entry::Occupied(state) = owners.states.entry((owner.clone(), deletion)) else { return None };
        match state.get() {
            State::Asked(_) => None,
            State::Answered(_) => match state.remove() {
                State::Answered(answer) => Some(answer),
                State::Asked(_) => None,
            },
        }
    }

    /// Drops a question: its owner does not wait any more, or waits for another deletion than when it was asked.
    pub(super) fn forget(&self, owner: &Uid, deletion: Deletion) {
        self.owners.lock().states.remove(&(owner.clone(), deletion));
    }

    /// The limit for lists of a resource, by whether it works.
    pub(super) fn lists(&self, is_sound: bool) -> &Semaphore {
        if is_sound { &self.sound_lists } else { &self.failed_lists }
    }

    /// Since when looks at a resource have failed.
    fn failed_since(&self, resource: ResourceId) -> Option<Instant> {
        self.failed.lock().get(&resource).copied()
    }

    /// A look at a resource has ended, which was begun then. The first of those that have failed in a row.
    fn looked(&self, resource: ResourceId, begun: Instant, has_failed: bool) -> Instant {
        let mut failed = self.failed.lock();
        if has_failed {
            return *failed.entry(resource).or_insert(begun);
        }
        failed.remove(&resource);
        begun
    }

    /// The questions of namespaces without a round.
    fn due(&self, busy: &BTreeSet<Option<String>>) -> Vec<(Option<String>, Vec<Question>)> {
        let mut owners = self.owners.lock();
        let waiting = std::mem::take(&mut owners.waiting);
        let (still, due): (BTreeMap<_, _>, BTreeMap<_, _>) =
            waiting.into_iter().partition(|(namespace, _)| busy.contains(namespace));
        owners.waiting = still;
        due.into_iter().collect()
    }

    /// Keeps an answer. Whether somebody waits for it.
    fn answered(&self, question: &Question, answer: Answer) -> bool {
        let mut owners = self.owners.lock();
        let Some(state) = owners.states.get_mut(&question.key()) else { return false };
        let is_asked = matches!(state, State::Asked(ticket) if *ticket == question.ticket);
        if is_asked {
            *state = State::Answered(answer);
        }
        is_asked
    }
}

/// What a round has found so far.
#[derive(Default)]
struct Round {
    found: Found,
    /// The first that could not be read, in the order of the resources.
    unread: BTreeMap<String, Unread>,
    /// How many resources that work have not answered yet.
    open: usize,
    /// The others that have not.
    open_failed: BTreeMap<ResourceId, Unread>,
}

impl Round {
    /// The answer to a question, if it need not wait for more.
    fn answer(&self, question: &Question, now: Instant) -> Option<Answer> {
        if self.open > 0 || self.gives_up(question).is_some_and(|until| now < until) {
            return None;
        }
        let referents = self.found.get(&question.owner.uid).cloned().unwrap_or_default();
        let unread = self.unread.values().chain(self.open_failed.values()).cloned().collect();
        Some(Answer { referents, unread })
    }

    /// When a question waits no longer for resources that have failed before.
    fn gives_up(&self, question: &Question) -> Option<Instant> {
        self.open_failed.values().map(|unread| question.patience.ends(unread.since)).max()
    }
}

impl Collector {
    /// Answers the questions, for ever.
    pub(super) async fn raise_barriers(&self) {
        let mut busy = BTreeSet::new();
        let mut rounds = FuturesUnordered::new();
        loop {
            for (namespace, questions) in self.barrier.due(&busy) {
                busy.insert(namespace.clone());
                let round = async move {
                    self.round(namespace.as_deref(), questions).await;
                    namespace
                };
                rounds.push(round.boxed());
            }
            tokio::select! {
                () = self.barrier.asked.notified() => {}
                Some(namespace) = rounds.next() => {
                    busy.remove(&namespace);
                }
            }
        }
    }

    /// Asks all resources, until each question has its answer.
    async fn round(&self, namespace: Option<&str>, mut questions: Vec<Question>) {
        let began = Instant::now();
        let owner = |question: &Question| (question.owner.uid.clone(), question.owner.clone());
        let owners: Arc<BTreeMap<Uid, Asked>> = Arc::new(questions.iter().map(owner).collect());
        let mut round = Round::default();
        round.unread.extend(self.kinds.unknown_groups());
        let mut looks = FuturesUnordered::new();
        for (id, resource, moved, is_broken) in self.kinds.all() {
            if namespace.is_some() && !resource.namespaced {
                continue;
            }
            let failed = self
                .barrier
                .failed_since(id)
                .or_else(|| is_broken.then(|| began.checked_sub(OUT_OF_REACH).unwrap_or(began)));
            let is_sound = failed.is_none();
            match failed {
                None => round.open += 1,
                Some(since) => {
                    let reason = format!("{} does not answer", resource.plural);
                    let unread = Unread { group: resource.group.clone(), reason, since };
                    round.open_failed.insert(id, unread);
                }
            }
            let owners = owners.clone();
            let look = async move {
                let found = self.look_for(&owners, namespace, &resource, moved, is_sound).await;
                (id, resource, found)
            };
            looks.push(look.boxed());
        }
        loop {
            let now = Instant::now();
            questions.retain(|question| match round.answer(question, now) {
                Some(answer) => {
                    if self.barrier.answered(question, answer) {
                        self.queue_ending(question);
                    }
                    false
                }
                None => true,
            });
            if questions.is_empty() {
                break;
            }
            let given_up = questions.iter().filter_map(|question| round.gives_up(question));
            let next = given_up.filter(|until| *until > now).min();
            tokio::select! {
                Some((id, resource, found)) = looks.next() => {
                    if round.open_failed.remove(&id).is_none() {
                        round.open -= 1;
                    }
                    let since = self.barrier.looked(id, began, found.is_err());
                    match found {
                        Ok(found) => found.into_iter().for_each(|(owner, more)| {
                            round.found.entry(owner).or_default().extend(more);
                        }),
                        Err(reason) => {
                            let unread = Unread { group: resource.group, reason, since };
                            round.unread.insert(resource.plural, unread);
                        }
                    }
                }
                () = tokio::time::sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
        self.context.metrics().garbage.barrier_duration.observe(began.elapsed().as_secs_f64());
    }

    fn queue_ending(&self, question: &Question) {
        match question.deletion {
            Deletion::Orphaning => self.orphans.add(question.owner.uid.clone()),
            Deletion::Foreground => self.foregrounds.add(question.owner.uid.clone()),
        }
    }
}
