//! The rules of leader election: a pure value; the caller passes the time and the content of the Lease.
//!
//! The rules are client-go's (`tools/leaderelection`), made stricter where it trusts more than it has to.
//! [`super::lease`] does the waiting and the calls.
//!
//! # Why no two leaders write at once
//!
//! A leader writes only before `sent + renew_deadline`, where `sent` is the instant before its last
//! successful renewal was sent. Another takes over only after it has seen one and the same record for the
//! whole `lease_duration`, counted from the answer that first showed it. That answer came after the
//! renewal was committed, and so after `sent`. Both spans lie on clocks of their own and neither side
//! reads the other's times, so that an offset between the clocks does not matter at all. If one clock
//! runs `f` times as fast as the other, the leader stops before the other starts as long as `f` is at
//! most `lease_duration / renew_deadline`: 1.5 with the defaults. Between answer and takeover a renewal
//! may come in unseen; then the write of the other one carries an old resourceVersion and is refused.
//!
//! A limit of these rules: `CLOCK_MONOTONIC` stands still while a machine sleeps or a virtual machine is
//! frozen and moved. A leader that wakes from that may write for the rest of its time by its own clock.
//! And an edit or deletion of the Lease by hand decides over the leadership, with all consequences.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Of the waits between two tries, the longest is `1 + JITTER` times the shortest, as in client-go.
const JITTER: f64 = 1.2;

/// An expiry farther off than this is not worth telling from never; far instants overflow.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How to take part in an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionOptions {
    /// How long other candidates wait after the last renewal that they saw. The Lease has whole seconds, so
    /// that a fraction is rounded up there.
    pub lease_duration: Duration,
    /// How long the leader acts without a successful renewal, counted from before that was sent.
    pub renew_deadline: Duration,
    /// The time between renewals, and the longest between two reads of a standby.
    pub retry_period: Duration,
    /// The name of the Lease.
    pub name: String,
    /// Its namespace. `None` is that of the pod we run in, or `kube-system` outside of a pod.
    pub namespace: Option<String>,
    /// Our identity, unique among all candidates. `None` is made from the host name and a random UUID.
    pub identity: Option<String>,
    /// Whether a clean exit releases the lease, so that another need not wait for its end.
    pub release_on_cancel: bool,
}

impl Default for ElectionOptions {
    /// The defaults of the flags.
    fn default() -> Self {
        ElectionOptions {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            name: "windlass".into(),
            namespace: None,
            identity: None,
            release_on_cancel: true,
        }
    }
}

/// A setting of the election that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag} must be {allowed}; it is {given}")]
pub struct ElectionError {
    /// The flag, without dashes.
    pub flag: &'static str,
    /// The values that are allowed.
    pub allowed: String,
    /// The value that was given.
    pub given: String,
}

impl ElectionOptions {
    /// Checks that the three durations leave room for each other, and that the Lease can have its name.
    ///
    /// # Errors
    /// The first setting that cannot be used, by the name of its flag.
    pub fn validate(&self) -> Result<(), ElectionError> {
        const LEASE: &str = "leader-elect-lease-duration";
        const DEADLINE: &str = "leader-elect-renew-deadline";
        const PERIOD: &str = "leader-elect-retry-period";
        let ElectionOptions { lease_duration, renew_deadline, retry_period, .. } = self;
        let error = |flag, allowed: &str, given: &Duration| ElectionError {
            flag,
            allowed: allowed.to_owned(),
            given: format!("{given:?}"),
        };
        if lease_duration.as_secs() < 1 || lease_duration.as_secs() >= i32::MAX as u64 {
            return Err(error(LEASE, "from 1s to 2147483646s", lease_duration));
        }
        if retry_period.is_zero() {
            return Err(error(PERIOD, "above 0", retry_period));
        }
        if renew_deadline >= lease_duration {
            let allowed = format!("shorter than --{LEASE} ({lease_duration:?})");
            return Err(error(DEADLINE, &allowed, renew_deadline));
        }
        if renew_deadline.as_secs_f64() <= JITTER * retry_period.as_secs_f64() {
            let allowed = format!("longer than {JITTER} times --{PERIOD} ({retry_period:?})");
            return Err(error(DEADLINE, &allowed, renew_deadline));
        }
        for (flag, name) in [
            ("leader-elect-resource-name", Some(&self.name)),
            ("leader-elect-resource-namespace", self.namespace.as_ref()),
        ] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                let allowed = "of lower-case letters, digits, '-' and '.', at most 253 of them".to_owned();
                return Err(ElectionError { flag, allowed, given: format!("{name:?}") });
            }
        }
        Ok(())
    }
}

/// Whether an object may have this name. The API server checks more; this keeps the name within its path.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    (1..=253).contains(&name.len()) && name.chars().all(allowed) && name != "." && name != ".."
}

/// The specification of a Lease. Absent fields are empty or 0 here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder; empty if there is none.
    pub holder: String,
    /// How long other candidates have to wait, in seconds.
    pub duration_seconds: i64,
    /// When the holder was elected, by its clock. For human readers.
    pub acquire_time: String,
    /// When it last renewed, by its clock. Only compared for changes.
    pub renew_time: String,
    /// How often the holder has changed.
    pub transitions: i64,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the election stands still until its step is done"]
pub enum Step {
    /// Read the Lease, then [`Elector::observe`] or [`Elector::failed`].
    Read,
    /// Create the Lease with this record, then [`Elector::written`] or [`Elector::failed`].
    Create(LeaseRecord),
    /// Write this record over the version last read or written, then as for `Create`.
    Update(LeaseRecord),
    /// Do nothing before this instant; then [`Elector::begin`].
    Wait(Instant),
    /// Do nothing any more: the lease is lost.
    Lost(Loss),
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// No renewal succeeded in time.
    #[error("it was not renewed within {0:?}")]
    Overdue(Duration),
    /// The Lease names another holder, or none.
    #[error("{}", taken(.0))]
    Taken(String),
    /// The process does nothing but renew it.
    #[error("the rest of this process has run no task for {0:?}")]
    Stalled(Duration),
}

fn taken(holder: &str) -> String {
    if holder.is_empty() { "its holder was cleared".into() } else { format!("{holder} holds it now") }
}

#[derive(Clone, Debug)]
struct Observed {
    record: LeaseRecord,
    /// When we first saw it.
    since: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Candidate,
    Leader {
        /// The instant before the last successful renewal was sent.
        renewed: Instant,
        /// Whether the write under way was tried without reading the Lease first.
        optimistic: bool,
    },
    Lost(Loss),
}

/// One candidate's view of the election. It leads at most once: a lost lease is not acquired again,
/// because the process ends.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
    observed: Option<Observed>,
    role: Role,
    /// Whether a write was ever requested: if so the Lease may be ours without our knowing.
    attempted: bool,
    rng: fastrand::Rng,
}

impl Elector {
    /// A candidate that has seen nothing yet. `seed` seeds the jitter.
    pub fn new(options: &ElectionOptions, identity: &str, seed: u64) -> Self {
        Elector {
            identity: identity.to_owned(),
            lease_duration: options.lease_duration,
            renew_deadline: options.renew_deadline,
            retry_period: options.retry_period,
            observed: None,
            role: Role::Candidate,
            attempted: false,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Our identity.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Until when we lead without another renewal, if we do.
    pub fn leads_until(&self) -> Option<Instant> {
        match self.role {
            Role::Leader { renewed, .. } if planted!("the fence stays open after the renew deadline") => {
                Some(renewed + self.lease_duration * 2)
            }
            Role::Leader { renewed, .. } => Some(renewed + self.renew_deadline),
            Role::Candidate | Role::Lost(_) => None,
        }
    }

    /// The holder of the lease at the last read; empty for none.
    pub fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |observed| &observed.record.holder)
    }

    /// Begins a try. A leader renews without reading the Lease: it knows the version it wrote. `wall` is
    /// the time of day, for human readers of the Lease.
    pub fn begin(&mut self, now: Instant, wall: Timestamp) -> Step {
        if let Some(lost) = self.overdue(now) {
            return lost;
        }
        match (&mut self.role, &self.observed) {
            (Role::Leader { optimistic, .. }, Some(observed)) => {
                *optimistic = true;
                Step::Update(self.renewal(&observed.record, wall))
            }
            _ => Step::Read,
        }
    }

    /// Applies a read of the Lease; `None` if it does not exist. `now` is when the answer came.
    pub fn observe(&mut self, found: Option<LeaseRecord>, now: Instant, wall: Timestamp) -> Step {
        if let Some(lost) = self.overdue(now) {
            return lost;
        }
        let leads = self.leads_until().is_some();
        let Some(record) = found else {
            return match &self.observed {
                Some(observed) if leads => Step::Create(self.renewal(&observed.record, wall)),
                // The deletion of the Lease did not stop its holder.
                Some(observed) if self.is_held_by_another(observed, now) => Step::Wait(self.retry_at(now)),
                _ => self.create(wall),
            };
        };
        if self.observed.as_ref().is_none_or(|observed| observed.record != record) {
            self.observed = Some(Observed { record: record.clone(), since: now });
        }
        if record.holder == self.identity {
            // Ours, perhaps by a write whose answer was lost.
            self.attempted = true;
            return Step::Update(self.renewal(&record, wall));
        }
        if leads {
            // client-go would acquire a lease that was emptied again without a pause. Others may have led
            // meanwhile, and emptying it is how an administrator requests another leader.
            return self.lose(Loss::Taken(record.holder));
        }
        if self.observed.as_ref().is_some_and(|observed| self.is_held_by_another(observed, now)) {
            return Step::Wait(self.retry_at(now));
        }
        self.attempted = true;
        let transitions = record.transitions.clamp(0, i64::from(i32::MAX) - 1) + 1;
        Step::Update(self.claim(wall, &record.renew_time, transitions))
    }

    /// Applies a successful write of this record. `sent` is the instant before the request was sent.
    pub fn written(&mut self, record: LeaseRecord, sent: Instant, now: Instant) -> Step {
        if let Some(lost) = self.overdue(now) {
            return lost;
        }
        self.observed = Some(Observed { record, since: now });
        if now >= sent + self.renew_deadline {
            // Elected, but so long ago that the time is over. Nothing was done with it: try again.
            return Step::Wait(now);
        }
        let renewed = if planted!("the renew deadline runs from the response") { now } else { sent };
        self.role = Role::Leader { renewed, optimistic: false };
        // From one request to the next, so that answers that take four seconds do not use up the deadline.
        Step::Wait((sent + self.retry_period).max(now + self.retry_period / 4))
    }

    /// Applies a failed step, or one of unknown outcome.
    pub fn failed(&mut self, now: Instant) -> Step {
        if let Some(lost) = self.overdue(now) {
            return lost;
        }
        if let Role::Leader { optimistic, .. } = &mut self.role
            && std::mem::take(optimistic)
        {
            return Step::Read;
        }
        Step::Wait(self.retry_at(now))
    }

    /// Whether the lease may be ours, so that releasing it makes sense.
    pub fn may_hold(&self) -> bool {
        self.attempted && !matches!(self.role, Role::Lost(_))
    }

    /// The record that releases the lease, if it is ours. The next holder counts the transition.
    pub fn release(&self, found: &LeaseRecord, wall: Timestamp) -> Option<LeaseRecord> {
        if found.holder != self.identity {
            return None;
        }
        let now = later_than(&found.renew_time, wall);
        Some(LeaseRecord {
            holder: String::new(),
            duration_seconds: 1,
            acquire_time: now.clone(),
            renew_time: now,
            transitions: found.transitions,
        })
    }

    fn create(&mut self, wall: Timestamp) -> Step {
        self.attempted = true;
        let transitions = self.observed.as_ref().map_or(0, |observed| {
            observed.record.transitions.clamp(0, i64::from(i32::MAX) - 1)
                + i64::from(observed.record.holder != self.identity)
        });
        Step::Create(self.claim(wall, "", transitions))
    }

    fn claim(&self, wall: Timestamp, before: &str, transitions: i64) -> LeaseRecord {
        let now = later_than(before, wall);
        LeaseRecord {
            holder: self.identity.clone(),
            duration_seconds: self.seconds(),
            acquire_time: now.clone(),
            renew_time: now,
            transitions,
        }
    }

    fn renewal(&self, record: &LeaseRecord, wall: Timestamp) -> LeaseRecord {
        let transitions = record.transitions.clamp(0, i64::from(i32::MAX));
        let claim = self.claim(wall, &record.renew_time, transitions);
        match record.acquire_time.as_str() {
            "" => claim,
            acquired => LeaseRecord { acquire_time: acquired.to_owned(), ..claim },
        }
    }

    /// Rounded up: rounded down, a lease could end before its holder's deadline.
    fn seconds(&self) -> i64 {
        let whole = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i64::try_from(whole).unwrap_or(i64::MAX).clamp(1, i64::from(i32::MAX))
    }

    fn is_held_by_another(&self, observed: &Observed, now: Instant) -> bool {
        let holder = &observed.record.holder;
        !holder.is_empty() && *holder != self.identity && now < self.expiry(observed)
    }

    /// By the record's own duration. Without a valid one ours applies.
    fn expiry(&self, observed: &Observed) -> Instant {
        let duration = match u64::try_from(observed.record.duration_seconds) {
            Ok(seconds @ 1..) => Duration::from_secs(seconds),
            _ => self.lease_duration,
        };
        observed.since + duration.min(NEVER)
    }

    /// When to try again. A leader waits for the retry period, but not beyond its deadline. A standby
    /// waits for a random part of it, so that standbys do not read in step, and reads once more right
    /// when the lease ends.
    ///
    /// client-go makes the wait longer by a random part, up to 4.4 s with the defaults; for that long no process
    /// would lead after a clean stop. Here it is made shorter, in the same proportion. The price is one
    /// small read in 1.5 s instead of 3.2 s for each standby.
    fn retry_at(&mut self, now: Instant) -> Instant {
        if let Some(deadline) = self.leads_until() {
            return (now + self.retry_period).min(deadline);
        }
        let part = (1.0 + JITTER * self.rng.f64()) / (1.0 + JITTER);
        let at = now + self.retry_period.mul_f64(part);
        match &self.observed {
            Some(observed) if self.is_held_by_another(observed, now) => at.min(self.expiry(observed)),
            _ => at,
        }
    }

    fn overdue(&mut self, now: Instant) -> Option<Step> {
        if let Role::Lost(loss) = &self.role {
            return Some(Step::Lost(loss.clone()));
        }
        let deadline = self.leads_until()?;
        (now >= deadline).then(|| self.lose(Loss::Overdue(self.renew_deadline)))
    }

    fn lose(&mut self, loss: Loss) -> Step {
        self.role = Role::Lost(loss.clone());
        Step::Lost(loss)
    }
}

/// The time of day as `metav1.MicroTime` has it; a microsecond later if it would equal `before`. Others
/// see a renewal by its change, and a clock that stands still would hide it.
fn later_than(before: &str, wall: Timestamp) -> String {
    let text = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let now = text(wall);
    if now != before {
        return now;
    }
    text(wall.saturating_add(Duration::from_micros(1)).unwrap_or(wall))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn wall() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn elector(identity: &str) -> Elector {
        Elector::new(&ElectionOptions::default(), identity, 1)
    }

    fn held_by(holder: &str, renewed: &str) -> LeaseRecord {
        LeaseRecord {
            holder: holder.into(),
            duration_seconds: 15,
            acquire_time: "2026-01-01T00:00:00.000000Z".into(),
            renew_time: renewed.into(),
            transitions: 3,
        }
    }

    /// A leader, elected by a write that was sent at `now`.
    fn leader(now: Instant) -> Elector {
        let mut elector = elector("me");
        assert_eq!(elector.begin(now, wall()), Step::Read);
        let Step::Create(record) = elector.observe(None, now, wall()) else { panic!("creates the lease") };
        let next = elector.written(record, now, now);
        assert_eq!(next, Step::Wait(now + 2 * S));
        elector
    }

    #[track_caller]
    fn waits(step: &Step) -> Instant {
        match step {
            Step::Wait(until) => *until,
            other => panic!("should wait: {other:?}"),
        }
    }

    #[test]
    fn the_first_candidate_creates_the_lease_and_leads() {
        let now = Instant::now();
        let mut elector = elector("me");
        let Step::Create(record) = elector.observe(None, now, wall()) else { panic!("creates the lease") };
        assert_eq!(
            record,
            LeaseRecord {
                holder: "me".into(),
                duration_seconds: 15,
                acquire_time: "2026-01-01T00:00:00.000000Z".into(),
                renew_time: "2026-01-01T00:00:00.000000Z".into(),
                transitions: 0,
            }
        );
        assert_eq!(elector.leads_until(), None, "not before the write has succeeded");
        let _ = elector.written(record, now, now + S);
        assert_eq!(elector.leads_until(), Some(now + 10 * S), "counted from before the request was sent");
    }

    #[test]
    fn a_silent_holder_loses_the_lease_after_its_own_duration_and_no_sooner() {
        let start = Instant::now();
        let mut elector = elector("me");
        let silent = LeaseRecord { duration_seconds: 40, ..held_by("other", "t0") };
        let mut now = start;
        while now < start + 40 * S {
            now = waits(&elector.observe(Some(silent.clone()), now, wall()));
        }
        assert_eq!(now, start + 40 * S, "looks again right when the lease ends");
        let Step::Update(record) = elector.observe(Some(silent), now, wall()) else { panic!("takes over") };
        assert_eq!((record.holder.as_str(), record.transitions, record.duration_seconds), ("me", 4, 15));
    }

    #[test]
    fn each_observed_renewal_restarts_the_wait_whatever_its_times() {
        let start = Instant::now();
        let mut elector = elector("me");
        // Far future, distant past, nonsense: only the change counts.
        for (at, renewed) in [(0, "9999-12-31T23:59:59Z"), (14, "1970-01-01T00:00:00Z"), (28, "yesterday")] {
            let step = elector.observe(Some(held_by("other", renewed)), start + at * S, wall());
            assert!(waits(&step) > start + at * S);
        }
        let step = elector.observe(Some(held_by("other", "yesterday")), start + 42 * S, wall());
        assert_eq!(waits(&step), start + 43 * S);
    }

    #[test]
    fn a_standby_reads_at_least_once_in_a_retry_period_and_never_in_a_hot_loop() {
        let (mut elector, now) = (elector("me"), Instant::now());
        let waits: Vec<Duration> = (0..200)
            .map(|n| waits(&elector.observe(Some(held_by("other", &n.to_string())), now, wall())) - now)
            .collect();
        let (shortest, longest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*longest <= 2 * S && *longest > Duration::from_millis(1900), "{longest:?}");
        assert!(*shortest >= Duration::from_millis(909) && *shortest < Duration::from_millis(1000));
    }

    #[test]
    fn a_released_lease_is_acquired_at_once_and_the_transition_counts() {
        let now = Instant::now();
        let mut other = elector("other");
        let released = leader(now).release(&held_by("me", "t0"), wall()).unwrap();
        assert_eq!(
            (released.holder.as_str(), released.duration_seconds, released.transitions),
            ("", 1, 3),
            "upstream's form"
        );
        assert_eq!(released.acquire_time, released.renew_time);
        let Step::Update(record) = other.observe(Some(released), now, wall()) else { panic!("takes it") };
        assert_eq!((record.holder.as_str(), record.transitions), ("other", 4));
        assert_eq!(leader(now).release(&held_by("other", "t0"), wall()), None, "not ours to give");
    }

    #[test]
    fn a_leader_renews_without_reading_and_reads_once_when_that_fails() {
        let now = Instant::now();
        let mut elector = leader(now);
        let Step::Update(record) = elector.begin(now + 2 * S, wall()) else { panic!("renews") };
        assert_eq!(record.transitions, 0);
        assert_ne!(record.renew_time, record.acquire_time, "a clock that stands still hides no renewal");
        assert_eq!(elector.failed(now + 3 * S), Step::Read);
        let seen = LeaseRecord { transitions: 7, ..held_by("me", "t1") };
        let Step::Update(record) = elector.observe(Some(seen), now + 3 * S, wall()) else { panic!("renews") };
        assert_eq!(record.transitions, 7);
        assert_eq!(elector.failed(now + 4 * S), Step::Wait(now + 6 * S), "the retry period");
        assert_eq!(elector.leads_until(), Some(now + 10 * S), "a failure moves nothing");
        assert_eq!(elector.failed(now + 9 * S), Step::Wait(now + 10 * S), "and never beyond the deadline");
    }

    #[test]
    fn a_leader_that_cannot_renew_loses_the_lease_at_its_deadline_for_good() {
        let now = Instant::now();
        let lost = Step::Lost(Loss::Overdue(10 * S));
        assert_eq!(leader(now).begin(now + 10 * S, wall()), lost);
        assert_eq!(leader(now).failed(now + 11 * S), lost);
        assert_eq!(leader(now).observe(Some(held_by("me", "t1")), now + 12 * S, wall()), lost);
        let mut late = leader(now);
        let Step::Update(record) = late.begin(now + 9 * S, wall()) else { panic!("renews") };
        assert_eq!(late.written(record.clone(), now + 9 * S, now + 10 * S), lost, "the answer came too late");
        assert_eq!(late.leads_until(), None);
        assert_eq!(late.begin(now, wall()), lost, "one life, one term");
        assert!(!late.may_hold(), "and nothing to give up: writes may be under way still");
    }

    #[test]
    fn a_leader_that_sees_another_holder_or_none_has_lost_at_once() {
        let now = Instant::now();
        for holder in ["other", ""] {
            let mut elector = leader(now);
            assert!(matches!(elector.begin(now + 2 * S, wall()), Step::Update(_)));
            assert_eq!(elector.failed(now + 2 * S), Step::Read);
            let step = elector.observe(Some(held_by(holder, "t1")), now + 2 * S, wall());
            assert_eq!(step, Step::Lost(Loss::Taken(holder.into())));
        }
    }

    #[test]
    fn an_election_whose_answer_came_after_the_deadline_is_no_election() {
        let now = Instant::now();
        let mut elector = elector("me");
        let Step::Create(record) = elector.observe(None, now, wall()) else { panic!("creates the lease") };
        let next = elector.written(record.clone(), now, now + 10 * S);
        assert_eq!((next, elector.leads_until()), (Step::Wait(now + 10 * S), None));
        assert!(matches!(elector.observe(Some(record), now + 11 * S, wall()), Step::Update(_)));
    }

    #[test]
    fn a_write_whose_answer_was_lost_is_recognized_by_our_own_identity() {
        let now = Instant::now();
        let mut elector = elector("me");
        assert!(matches!(elector.observe(None, now, wall()), Step::Create(_)));
        let again = waits(&elector.failed(now + 5 * S));
        assert!(elector.may_hold(), "a stop now must look whether the lease is ours");
        let Step::Update(record) = elector.observe(Some(held_by("me", "t0")), again, wall()) else {
            panic!("takes what is ours")
        };
        assert_eq!(record.transitions, 3, "no change of holder");
    }

    #[test]
    fn a_deleted_lease_does_not_make_its_holder_stop() {
        let now = Instant::now();
        let mut elector = elector("me");
        let _ = elector.observe(Some(held_by("other", "t0")), now, wall());
        assert!(waits(&elector.observe(None, now + S, wall())) > now + S);
        let Step::Create(record) = elector.observe(None, now + 15 * S, wall()) else { panic!("creates it") };
        assert_eq!(record.transitions, 4);
        let mut leader = leader(now);
        assert!(matches!(leader.begin(now + 2 * S, wall()), Step::Update(_)));
        assert_eq!(leader.failed(now + 2 * S), Step::Read);
        let Step::Create(record) = leader.observe(None, now + 2 * S, wall()) else { panic!("creates it") };
        assert_eq!((record.holder.as_str(), record.transitions), ("me", 0));
    }

    #[test]
    fn hostile_leases_cause_neither_panic_nor_election() {
        let now = Instant::now();
        for seconds in [i64::MIN, -1, 0] {
            let mut elector = elector("me");
            let record = LeaseRecord { duration_seconds: seconds, ..held_by("other", "t0") };
            assert!(waits(&elector.observe(Some(record.clone()), now, wall())) > now, "{seconds}");
            let step = elector.observe(Some(record), now + 15 * S, wall());
            assert!(matches!(step, Step::Update(_)), "our own duration instead");
        }
        let mut patient = elector("me");
        let record = LeaseRecord { duration_seconds: i64::MAX, ..held_by("other", "t0") };
        let _ = patient.observe(Some(record.clone()), now, wall());
        let century = now + Duration::from_secs(3600 * 24 * 365 * 9);
        assert!(matches!(patient.observe(Some(record), century, wall()), Step::Wait(_)));
        for transitions in [i64::MIN, -1, i64::from(i32::MAX), i64::MAX] {
            let mut elector = elector("me");
            let record = LeaseRecord { transitions, ..held_by("", "t0") };
            let Step::Update(record) = elector.observe(Some(record), now, wall()) else { panic!("takes it") };
            assert!((1..=i64::from(i32::MAX)).contains(&record.transitions), "{}", record.transitions);
        }
        let mut elector = elector("me");
        let Step::Update(_) = elector.observe(Some(LeaseRecord::default()), now, wall()) else {
            panic!("takes a lease without a specification")
        };
        let _ = elector.observe(Some(held_by("\u{0}\n\"; rm", "x")), now, Timestamp::MAX);
        let _ = elector.observe(Some(held_by("other", "")), now, Timestamp::MIN);
    }

    /// H1 and H2: a leader whose clock is slow and a standby whose clock is fast, both by the rules.
    /// Returns for how long, in real milliseconds, the leader has stopped when the other takes over;
    /// negative is an overlap.
    fn margin(slow: f64, fast: f64, offset: u64, last_renewal: Duration, look: Duration) -> i64 {
        let start = Instant::now() + S;
        let theirs = start + Duration::from_secs(offset);
        let real = |elapsed: Duration, rate: f64| elapsed.div_f64(rate).as_millis() as i64;
        // The leader renews at this instant of real time, is then cut off, and stops by its own clock.
        let mut leader = leader(start);
        let sent = start + last_renewal.mul_f64(slow);
        let Step::Update(record) = leader.begin(sent, wall()) else { panic!("renews") };
        let _ = leader.written(record.clone(), sent, sent);
        let stops = real(leader.leads_until().unwrap() - start, slow);
        // The other sees that renewal at the earliest possible moment, and measures by its own clock.
        let mut standby = elector("standby");
        let mut now = theirs + last_renewal.mul_f64(fast);
        loop {
            match standby.observe(Some(record.clone()), now, wall()) {
                Step::Wait(until) => now = until.min(now + look),
                Step::Update(_) => return real(now - theirs, fast) - stops,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn no_clock_is_so_skewed_that_two_lead_as_long_as_the_skew_is_within_the_ratio() {
        for offset in [0, 1, 86_400, 1_000_000_000] {
            for look in [Duration::from_millis(100), 2 * S, 3600 * S] {
                for renewal in [2 * S, 9 * S] {
                    assert_eq!(margin(1.0, 1.0, offset, renewal, look), 5000, "without skew");
                    assert!(margin(1.0, 1.5, offset, renewal, look) >= 0);
                    assert!(margin(1.0 / 1.5, 1.0, offset, renewal, look) >= 0);
                    assert!(margin(0.9, 1.34, offset, renewal, look) >= 0);
                    assert!(margin(1.0, 1.6, offset, renewal, look) < 0, "the bound is sharp");
                }
            }
        }
    }

    #[test]
    fn the_durations_must_leave_room_for_each_other_and_errors_name_the_flag() {
        let with = |lease: u64, renew: u64, retry: u64| ElectionOptions {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            ..ElectionOptions::default()
        };
        assert_eq!(ElectionOptions::default().validate(), Ok(()));
        assert_eq!(with(1000, 999, 800).validate(), Ok(()));
        for (lease, renew, retry, message) in [
            (999, 500, 100, "--leader-elect-lease-duration must be from 1s to 2147483646s; it is 999ms"),
            (15_000, 10_000, 0, "--leader-elect-retry-period must be above 0; it is 0ns"),
            (
                10_000,
                10_000,
                2_000,
                "--leader-elect-renew-deadline must be shorter than --leader-elect-lease-duration (10s); it is 10s",
            ),
            (
                15_000,
                2_400,
                2_000,
                "--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period (2s); \
                 it is 2.4s",
            ),
        ] {
            assert_eq!(with(lease, renew, retry).validate().unwrap_err().to_string(), message);
        }
        for name in ["", "..", "a/b", "A", "a b", "ä"] {
            let options = ElectionOptions { name: name.into(), ..ElectionOptions::default() };
            assert_eq!(options.validate().unwrap_err().flag, "leader-elect-resource-name", "{name:?}");
        }
        let options = ElectionOptions { namespace: Some("a?".into()), ..ElectionOptions::default() };
        assert_eq!(options.validate().unwrap_err().flag, "leader-elect-resource-namespace");
    }

    #[test]
    fn a_fraction_of_a_second_makes_the_lease_longer_never_shorter_than_the_deadline() {
        let options = ElectionOptions {
            lease_duration: Duration::from_millis(1900),
            renew_deadline: Duration::from_millis(1800),
            retry_period: S,
            ..ElectionOptions::default()
        };
        let mut elector = Elector::new(&options, "me", 1);
        let Step::Create(record) = elector.observe(None, Instant::now(), wall()) else {
            panic!("creates it")
        };
        assert_eq!(record.duration_seconds, 2);
    }
}
