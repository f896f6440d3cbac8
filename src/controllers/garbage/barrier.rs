//! The barrier before a finalizer of ours comes off: who refers to an owner, whatever the watches have shown until now.
//!
//! An orphaning deletion that ends before a dependent was seen has it deleted afterwards, as one whose owner is gone. So
//! each resource is asked, after the deletion was seen ([`super::referents`]).
//!
//! No worker waits here: a sync asks and ends, and the answer queues its owner again. One round serves all owners that have
//! asked before it begins, whatever their namespaces are: a hundred trees that are deleted together cost as many requests
//! for each of their levels as one. The next begins once the resources that work have answered. An owner has its answer then,
//! if its patience with the others is over.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::Collector;
use super::referents::{Asked, Owners, Referent, Referents};
use crate::model::Uid;
use crate::plan::garbage::graph::ResourceId;
use crate::runtime::reachability::OUT_OF_REACH;

/// How many lists are under way at a time: of resources that work, and of those that have failed. A resource that does not
/// answer must not use up the first.
const LISTS_AT_ONCE: (usize, usize) = (32, 8);

/// A round begins when nobody has asked for so long and no object is being looked at that may let another ask, and at most so
/// long after the first: the owners of one level of their trees ask one after the other, and who has missed a round needs the
/// next. The price is that a deletion beside a cascade takes up to two seconds longer for each of its levels.
const QUIET: Duration = Duration::from_millis(100);
const LONGEST_GATHERING: Duration = Duration::from_secs(2);

/// How long each round waits for resources that have failed, after the others have answered, however long they have been
/// missed: they may have come back, and are not to be overlooked for want of a moment.
const CHANCE: Duration = Duration::from_secs(1);

/// Which deletion ends when the answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deletion {
    /// One without the dependents.
    Orphaning,
    /// One after the dependents.
    Foreground,
}

/// The answers of all resources about an owner.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The objects that refer to it.
    pub(super) referents: Vec<Referent>,
    /// Why there may be others; empty if all resources were read.
    pub(super) unread: Vec<Unread>,
    /// When they began to be asked.
    pub(super) asked: Instant,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    /// The API group.
    pub(super) group: String,
    /// The defect.
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
struct Questions {
    states: BTreeMap<(Uid, Deletion), State>,
    /// Those that no round has begun with.
    waiting: Vec<Question>,
    last_ticket: u64,
}

impl Questions {
    /// Whether somebody waits for the answer to this one.
    fn is_open(&self, question: &Question) -> bool {
        let state = self.states.get(&question.key());
        matches!(state, Some(State::Asked(ticket)) if *ticket == question.ticket)
    }
}

/// The owners that wait.
pub(super) struct Barrier {
    questions: Mutex<Questions>,
    asked: Notify,
    /// That of the round that asks the resources that work.
    turn: Semaphore,
    /// Resources whose last look failed, each with the first of those in a row.
    failed: Mutex<BTreeMap<ResourceId, Instant>>,
    sound_lists: Semaphore,
    failed_lists: Semaphore,
}

impl Default for Barrier {
    fn default() -> Self {
        let (sound, failed) = LISTS_AT_ONCE;
        Barrier {
            questions: Mutex::default(),
            asked: Notify::new(),
            turn: Semaphore::new(1),
            failed: Mutex::default(),
            sound_lists: Semaphore::new(sound),
            failed_lists: Semaphore::new(failed),
        }
    }
}

impl Barrier {
    /// Asks who refers to this owner, by what the API server has after this call. Once there is an answer the owner is
    /// queued again. A question that was asked before stands.
    pub(super) fn ask(&self, owner: Asked, deletion: Deletion, patience: Patience) {
        let mut questions = self.questions.lock();
        let ticket = questions.last_ticket + 1;
        let question = Question { owner, deletion, patience, ticket };
        let Entry::Vacant(vacant) = questions.states.entry(question.key()) else { return };
        vacant.insert(State::Asked(ticket));
        questions.last_ticket = ticket;
        questions.waiting.push(question);
        self.asked.notify_one();
    }

    /// The answer, once.
    pub(super) fn take(&self, owner: &Uid, deletion: Deletion) -> Option<Answer> {
        let mut questions = self.questions.lock();
        let Entry::Occupied(state) = questions.states.entry((owner.clone(), deletion)) else { return None };
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
        self.questions.lock().states.remove(&(owner.clone(), deletion));
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

    /// The questions of the next round, when it may begin. What is asked from then on is none of them. `are_more_due` says
    /// whether others may ask soon.
    async fn gathered(
        &self,
        are_more_due: impl Fn() -> bool,
    ) -> (Option<SemaphorePermit<'_>>, Vec<Question>) {
        // It is never closed.
        let turn = self.turn.acquire().await.ok();
        loop {
            self.asked.notified().await;
            let first = Instant::now();
            while first.elapsed() < LONGEST_GATHERING
                && (tokio::time::timeout(QUIET, self.asked.notified()).await.is_ok() || are_more_due())
            {
            }
            let mut all = self.questions.lock();
            let waiting = std::mem::take(&mut all.waiting);
            let open: Vec<Question> = waiting.into_iter().filter(|question| all.is_open(question)).collect();
            if !open.is_empty() {
                return (turn, open);
            }
        }
    }

    /// Keeps an answer. Whether somebody waits for it.
    fn answered(&self, question: &Question, answer: Answer) -> bool {
        let mut questions = self.questions.lock();
        let is_open = questions.is_open(question);
        if is_open {
            questions.states.insert(question.key(), State::Answered(answer));
        }
        is_open
    }
}

/// The findings of a round so far.
struct Round {
    began: Instant,
    /// When the last resource that works has answered.
    settled: Instant,
    found: Referents,
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
        Some(Answer { referents, unread, asked: self.began })
    }

    /// When a question waits no longer for resources that have failed before.
    fn gives_up(&self, question: &Question) -> Option<Instant> {
        let last = self.open_failed.values().map(|unread| question.patience.ends(unread.since)).max()?;
        Some(last.max(self.settled + CHANCE))
    }
}

impl Collector {
    /// Answers the questions, for ever.
    pub(super) async fn raise_barriers(&self) {
        let mut rounds = FuturesUnordered::new();
        let are_more_due = || !self.queue.is_empty() || self.queue.longest_running() > Duration::ZERO;
        loop {
            let mut gathering = std::pin::pin!(self.barrier.gathered(are_more_due));
            let (turn, questions) = loop {
                tokio::select! {
                    next = gathering.as_mut() => break next,
                    Some(()) = rounds.next() => {}
                }
            };
            rounds.push(self.round(turn, questions).boxed());
        }
    }

    /// Asks all resources, until each question has its answer.
    async fn round(&self, turn: Option<SemaphorePermit<'_>>, mut questions: Vec<Question>) {
        let (mut turn, began) = (turn, Instant::now());
        let owners = Arc::new(Owners::of(questions.iter().map(|question| &question.owner)));
        let unread = self.kinds.unknown_groups().into_iter().collect();
        let mut round = Round {
            began,
            settled: began,
            found: Referents::new(),
            unread,
            open: 0,
            open_failed: BTreeMap::new(),
        };
        let mut looks = FuturesUnordered::new();
        for (id, resource, moved, is_broken) in self.kinds.all() {
            if !owners.can_own(&resource) {
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
                let found = self.look_for(&owners, (id, &resource), moved, is_sound).await;
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
            if round.open == 0 {
                // Only those wait longer that wait for what has failed before.
                turn = None;
            }
            let given_up = questions.iter().filter_map(|question| round.gives_up(question));
            let next = given_up.filter(|until| *until > now).min();
            tokio::select! {
                Some((id, resource, found)) = looks.next() => {
                    if round.open_failed.remove(&id).is_none() {
                        (round.open, round.settled) = (round.open - 1, Instant::now());
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
        drop(turn);
        self.context.metrics().garbage.barrier_duration.observe(began.elapsed().as_secs_f64());
    }

    fn queue_ending(&self, question: &Question) {
        match question.deletion {
            Deletion::Orphaning => self.orphans.add(question.owner.uid.clone()),
            Deletion::Foreground => self.foregrounds.add(question.owner.uid.clone()),
        }
    }
}
