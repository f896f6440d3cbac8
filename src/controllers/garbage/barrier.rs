//! The barrier before a finalizer of ours comes off: who refers to an owner, whatever the watches have shown until now.
//!
//! An orphaning deletion that ends before a dependent was seen has it deleted afterwards, as one whose owner is gone. So
//! each resource is asked, after the deletion was seen ([`super::referents`]).
//!
//! No worker waits here: a sync asks and ends, and the answer queues its owner again. One round serves all owners of a
//! namespace that wait when it begins, and those of other namespaces run beside it. An owner in foreground deletion has
//! its answer as soon as the resources that work have answered and its patience with the others is over.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::Collector;
use super::referents::{Asked, Found, Referent};
use crate::model::Uid;
use crate::plan::garbage::graph::ResourceId;

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
    /// Why there may be others; `None` if all resources were read.
    pub(super) unread: Option<String>,
}

/// A question of an owner.
#[derive(Clone, Debug)]
struct Question {
    owner: Asked,
    deletion: Deletion,
    /// Until when it waits for resources that cannot be read; `None`: for ever.
    patience: Option<Instant>,
    ticket: u64,
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
    /// Resources whose last look failed.
    failed: Mutex<BTreeSet<ResourceId>>,
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
        patience: Option<Instant>,
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

    /// Whether the last look at a resource failed.
    fn has_failed(&self, resource: ResourceId) -> bool {
        self.failed.lock().contains(&resource)
    }

    fn looked(&self, resource: ResourceId, has_failed: bool) {
        let mut failed = self.failed.lock();
        if has_failed {
            failed.insert(resource);
        } else {
            failed.remove(&resource);
        }
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
    unread: BTreeMap<String, String>,
    /// How many resources have not answered yet: those that work, and the others.
    open: (usize, usize),
}

impl Round {
    /// The answer to a question, if it need not wait for more.
    fn answer(&self, question: &Question, now: Instant) -> Option<Answer> {
        let is_out_of_patience = question.patience.is_some_and(|until| now >= until);
        let is_complete = self.open.0 == 0 && (self.open.1 == 0 || is_out_of_patience);
        let unread = self.unread.values().next().cloned().or_else(|| {
            (self.open.1 > 0).then(|| "a resource that has failed before does not answer".to_owned())
        });
        let referents = || self.found.get(&question.owner.uid).cloned().unwrap_or_default();
        is_complete.then(|| Answer { referents: referents(), unread })
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
            let is_sound = !is_broken && !self.barrier.has_failed(id);
            let open = if is_sound { &mut round.open.0 } else { &mut round.open.1 };
            *open += 1;
            let owners = owners.clone();
            let look = async move {
                let found = self.look_for(&owners, namespace, &resource, moved, is_sound).await;
                (id, is_sound, resource.plural, found)
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
            let patience = questions.iter().filter_map(|question| question.patience);
            let patience = patience.filter(|until| *until > now).min();
            let out_of_patience = async {
                match patience {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                Some((id, is_sound, plural, found)) = looks.next() => {
                    let open = if is_sound { &mut round.open.0 } else { &mut round.open.1 };
                    *open -= 1;
                    self.barrier.looked(id, found.is_err());
                    match found {
                        Ok(found) => found.into_iter().for_each(|(owner, more)| {
                            round.found.entry(owner).or_default().extend(more);
                        }),
                        Err(reason) => {
                            round.unread.insert(plural, reason);
                        }
                    }
                }
                () = out_of_patience => {}
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
