use std::sync::LazyLock;

use serde_json::{Value, json};

use super::*;
use crate::model::{Interner, Record as _};

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
static UTC: TimeZone = TimeZone::UTC;

fn at(minute: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
    Timestamp::from_second(start.as_second() + minute * 60).unwrap()
}

/// A CronJob of 10:00 with a schedule of every five minutes.
struct Case {
    cron_job: Value,
    jobs: Vec<Value>,
    taken: Vec<String>,
    last_run: Option<Timestamp>,
    rescheduled: Option<Rescheduled>,
}

fn case(spec: Value) -> Case {
    let mut cron_job = json!({
        "metadata": {"name": "backup", "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 1,
                     "creationTimestamp": at(-1).to_string()},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": {}},
        "status": {},
    });
    for (field, value) in spec.as_object().unwrap() {
        cron_job["spec"][field] = value.clone();
    }
    Case { cron_job, jobs: Vec::new(), taken: Vec::new(), last_run: None, rescheduled: None }
}

impl Case {
    /// The CronJob's last run was at this minute.
    fn last(mut self, minute: i64) -> Self {
        self.cron_job["status"]["lastScheduleTime"] = at(minute).to_string().into();
        self
    }

    /// The status lists this Job.
    fn active(mut self, uid: &str) -> Self {
        let mut active = self.cron_job["status"]["active"].as_array().cloned().unwrap_or_default();
        active.push(json!({"name": uid.trim_start_matches("u-"), "uid": uid}));
        self.cron_job["status"]["active"] = active.into();
        self
    }

    fn annotated(mut self, annotation: &str, value: &str) -> Self {
        self.cron_job["metadata"]["annotations"][annotation] = value.into();
        self
    }

    /// The Job of a run, in this state: `None` is unfinished.
    fn job(self, minute: i64, ended: Option<&str>) -> Self {
        let name = format!("backup-{}", at(minute).as_second() / 60);
        let annotations = json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": at(minute).to_string()});
        self.with_job(&name, minute, ended, annotations)
    }

    /// A Job that a user has created for the CronJob.
    fn manual(self, name: &str, minute: i64, ended: Option<&str>) -> Self {
        self.with_job(name, minute, ended, json!({"cronjob.kubernetes.io/instantiate": "manual"}))
    }

    fn with_job(mut self, name: &str, minute: i64, ended: Option<&str>, annotations: Value) -> Self {
        let mut job = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "7",
                "annotations": annotations, "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob",
                    "name": "backup", "uid": "u", "controller": true}]},
            "spec": {},
            "status": {"startTime": at(minute).to_string()},
        });
        if let Some(kind) = ended {
            let end = at(minute + 1).to_string();
            job["status"]["conditions"] =
                json!([{"type": kind, "status": "True", "lastTransitionTime": end}]);
            if kind == "Complete" {
                job["status"]["completionTime"] = end.into();
            }
        }
        self.jobs.push(job);
        self
    }

    /// Its schedule was changed then, while a run was due.
    fn rescheduled(self, minute: i64, due: Option<i64>) -> Self {
        Case { rescheduled: Some(Rescheduled { since: at(minute), due: due.map(at) }), ..self }
    }

    fn plan(&self, minute: i64) -> Plan {
        let decode = |job: &Value| Arc::new(Job::decode(&job.to_string(), &mut Interner::default()).unwrap());
        let cron_job = CronJob::decode(&self.cron_job.to_string(), &mut Interner::default()).unwrap();
        plan(&Observed {
            cron_job: &cron_job,
            jobs: self.jobs.iter().map(decode).collect(),
            taken: self.taken.iter().map(|name| name.as_str().into()).collect(),
            unreadable_jobs: 0,
            last_run: self.last_run,
            rescheduled: self.rescheduled,
            zones: &ZONES,
            local_zone: &UTC,
            now: at(minute),
        })
    }
}

/// The minute of the run that begins.
fn starts(plan: &Plan) -> Option<i64> {
    plan.start.as_ref().map(|start| start.time.duration_since(at(0)).as_mins())
}

fn deleted(plan: &Plan) -> Vec<&str> {
    plan.deletions.iter().map(|deletion| &*deletion.job.meta.key.name).collect()
}

fn active(plan: &Plan) -> Vec<&str> {
    plan.status.active.iter().map(|job| &*job.name).collect()
}

fn noted(plan: &Plan) -> Vec<&'static str> {
    plan.notes.iter().map(|note| note.event.reason).collect()
}

fn name(minute: i64) -> String {
    format!("backup-{}", at(minute).as_second() / 60)
}

#[test]
fn a_run_starts_when_it_is_due_and_the_timer_is_set_for_the_next() {
    let every_five = case(json!({}));
    let early = every_five.plan(-1);
    assert_eq!((starts(&early), early.requeue_after), (None, Some(Duration::from_secs(60))));
    let due = every_five.plan(0);
    assert_eq!((starts(&due), due.requeue_after), (Some(0), Some(Duration::from_secs(300))));
    assert_eq!(due.start.as_ref().map(|start| start.name.as_str()), Some("backup-29454360"));
    let job = ActiveJob { name: "backup-29454360".into(), uid: Uid::new("u-1"), resource_version: 9 };
    let outcome = Outcome { deleted: BTreeSet::new(), started: Some((at(0), Some(job.clone()))) };
    let status = settled(&due, &outcome);
    assert_eq!((status.last_schedule, status.active), (Some(at(0)), vec![job]));
    assert_eq!(starts(&case(json!({})).last(0).plan(4)), None);
}

#[test]
fn of_missed_times_only_the_latest_runs_and_the_number_is_told_once() {
    let case = case(json!({})).last(0);
    let late = case.plan(17);
    assert_eq!((starts(&late), noted(&late)), (Some(15), vec!["MissSchedule"]));
    assert!(
        late.notes[0].event.message.contains("Thu, 01 Jan 2026 10:15:00 +0000 (about 3 times"),
        "{late:?}"
    );
    assert_eq!(case.plan(18).notes[0].about, late.notes[0].about, "the same stretch");
    let very_late = case.plan(5 * 200);
    assert_eq!(starts(&very_late), Some(1000));
    assert!(noted(&very_late).contains(&"TooManyMissedTimes"));
}

#[test]
fn a_run_that_did_not_begin_in_time_is_left_out() {
    let case = case(json!({"startingDeadlineSeconds": 60})).last(0);
    assert_eq!(starts(&case.plan(5)), Some(5));
    let late = case.plan(6);
    assert_eq!((starts(&late), noted(&late)), (None, vec!["MissSchedule"]));
    assert_eq!(late.requeue_after, Some(Duration::from_secs(240)));
    let never = case_with_deadline_zero().plan(5);
    assert_eq!(starts(&never), None);
}

fn case_with_deadline_zero() -> Case {
    case(json!({"startingDeadlineSeconds": 0})).last(0)
}

#[test]
fn a_suspended_or_deleted_cron_job_starts_nothing_and_its_status_is_kept() {
    let suspended =
        case(json!({"suspend": true})).last(0).active(&format!("u-{}", name(0))).job(0, Some("Complete"));
    let plan = suspended.plan(10);
    assert_eq!((starts(&plan), active(&plan), plan.requeue_after), (None, vec![], None));
    assert_eq!((plan.changes.len(), plan.status.last_successful), (1, Some(at(1))));
    assert_eq!(plan.changes[0].message, format!("Saw completed job: {}, condition: Complete", name(0)));
    let mut deleting = case(json!({}));
    deleting.cron_job["metadata"]["deletionTimestamp"] = at(1).to_string().into();
    assert_eq!(starts(&deleting.plan(10)), None);
}

#[test]
fn forbid_waits_for_an_unfinished_run_and_makes_it_up() {
    let forbid = || case(json!({"concurrencyPolicy": "Forbid"})).last(0);
    let busy = forbid().active(&format!("u-{}", name(0))).job(0, None);
    let plan = busy.plan(5);
    assert_eq!((starts(&plan), noted(&plan)), (None, vec!["JobAlreadyActive"]));
    assert_eq!(plan.status.last_schedule, Some(at(0)));
    let longer = busy.plan(12);
    assert_eq!(noted(&longer), ["JobAlreadyActive", "MissSchedule"]);
    assert_eq!(longer.notes[0].about, plan.notes[0].about, "once for the Job that blocks");
    let free = forbid().active(&format!("u-{}", name(0))).job(0, Some("Failed"));
    assert_eq!(starts(&free.plan(7)), Some(5));
}

#[test]
fn a_run_that_the_status_does_not_list_blocks_forbid_and_is_listed_again() {
    // The process crashed between the creation of the Job and the write of the status.
    let forgotten = case(json!({"concurrencyPolicy": "Forbid"})).job(0, None);
    let plan = forgotten.plan(5);
    assert_eq!((starts(&plan), active(&plan)), (None, vec![&*name(0)]));
    assert_eq!(plan.status.last_schedule, Some(at(0)), "and the time is repaired");
    assert_eq!(noted(&plan), ["UnexpectedJob", "JobAlreadyActive"]);
    assert_eq!(starts(&forgotten.plan(0)), None, "its time does not run again");
    // Without the Job in between, what this process has started counts.
    let deleted = Case { last_run: Some(at(0)), ..case(json!({})) };
    assert_eq!(starts(&deleted.plan(1)), None);
}

#[test]
fn a_run_of_a_clock_that_is_a_little_ahead_is_not_replaced_by_an_earlier_time() {
    let ahead = case(json!({"concurrencyPolicy": "Replace"})).last(-5).job(10, None);
    let plan = ahead.plan(9);
    assert_eq!((starts(&plan), deleted(&plan)), (None, vec![]));
    assert_eq!(plan.status.last_schedule, Some(at(10)), "as its leader would have written");
}

#[test]
fn a_new_schedule_begins_when_it_is_written() {
    let rescheduled = |minute| case(json!({})).last(0).rescheduled(minute, None);
    assert_eq!(starts(&case(json!({})).last(0).plan(7)), Some(5), "missed");
    assert_eq!(starts(&rescheduled(7).plan(7)), None, "not a time of this schedule");
    assert_eq!(starts(&rescheduled(7).plan(10)), Some(10));
    assert_eq!(noted(&rescheduled(21).plan(25)), [""; 0], "none of the times before was missed");
    assert_eq!(noted(&case(json!({})).last(0).plan(25)), ["MissSchedule"]);
    assert_eq!(starts(&rescheduled(100_000).plan(7)), Some(5), "by a clock that was wrong");
}

#[test]
fn a_run_that_was_due_when_the_schedule_was_written_anew_still_runs() {
    let waiting = case(json!({})).last(0).rescheduled(7, Some(5));
    assert_eq!(starts(&waiting.plan(8)), Some(5), "both have this time");
    let other = case(json!({"schedule": "*/3 * * * *"})).last(0).rescheduled(7, Some(5));
    assert_eq!(starts(&other.plan(8)), None, "6 past is a time of the new one alone");
    assert_eq!(waiting.plan(8).due, Some(at(5)));
}

#[test]
fn an_interval_counts_from_the_last_run_also_after_a_change() {
    let daily = case(json!({"schedule": "@every 1h"})).last(0).rescheduled(50, None);
    assert_eq!((starts(&daily.plan(59)), starts(&daily.plan(60))), (None, Some(60)));
    assert_eq!(daily.plan(59).requeue_after, Some(Duration::from_secs(60)));
}

#[test]
fn replace_deletes_unfinished_runs_first() {
    let case =
        case(json!({"concurrencyPolicy": "Replace"})).last(0).active(&format!("u-{}", name(0))).job(0, None);
    let plan = case.plan(5);
    assert_eq!((deleted(&plan), starts(&plan)), (vec![&*name(0)], Some(5)));
    let outcome = Outcome { deleted: [Uid::new(&format!("u-{}", name(0)))].into(), started: None };
    assert_eq!(settled(&plan, &outcome).active, []);
    let waits = case.annotated(crate::model::cronjob::REPLACE, "after-pods");
    let plan = waits.plan(5);
    assert_eq!((deleted(&plan), starts(&plan)), (vec![&*name(0)], None));
    assert_eq!(plan.deletions[0].cause, Cause::Replaced { pods_first: true });
}

#[test]
fn a_users_job_is_told_of_once_and_neither_listed_nor_replaced() {
    let case = case(json!({"concurrencyPolicy": "Replace"})).last(0).manual("by-hand", 1, None);
    let plan = case.plan(5);
    assert_eq!((active(&plan), deleted(&plan), starts(&plan)), (vec![], vec![], Some(5)));
    assert_eq!(noted(&plan), ["UnexpectedJob"]);
    assert_eq!(case.plan(6).notes[0].about, plan.notes[0].about);
}

#[test]
fn a_listed_job_that_is_gone_leaves_the_status() {
    let plan = case(json!({})).last(0).active("u-gone").plan(1);
    assert_eq!(active(&plan), [""; 0]);
    assert_eq!(plan.changes[0].reason, "MissingJob");
}

#[test]
fn a_listed_job_of_another_leaves_the_status_and_is_not_called_missing() {
    let listed = Case { taken: vec!["real".to_owned()], ..case(json!({})).last(0).active("u-real") };
    let plan = listed.plan(1);
    assert_eq!((active(&plan), plan.changes.len()), (vec![], 0));
}

#[test]
fn the_history_keeps_the_newest_and_what_alone_proves_a_run() {
    let limits = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0, "suspend": true});
    let full = || {
        let case =
            case(limits.clone()).job(0, Some("Complete")).job(5, Some("Complete")).job(10, Some("Failed"));
        case.manual("by-hand", 3, Some("Complete"))
    };
    assert_eq!(deleted(&full().last(10).plan(11)), [&*name(0), "by-hand", &*name(10)]);
    // The status shows the run of 0 only: the later Jobs are the locks of their names.
    assert_eq!(deleted(&full().last(0).plan(11)), [&*name(0), "by-hand"]);
    assert_eq!(deleted(&full().plan(11)), ["by-hand"]);
    assert_eq!(full().plan(11).status.last_schedule, Some(at(10)), "which repairs the status");
    let unlimited = json!({"successfulJobsHistoryLimit": null, "suspend": true});
    assert_eq!(deleted(&case(unlimited).last(9).job(0, Some("Complete")).plan(11)), [""; 0]);
}

#[test]
fn a_name_that_another_owner_has_is_not_requested() {
    let taken = Case { taken: vec![name(5)], ..case(json!({})).last(0) };
    let plan = taken.plan(6);
    assert_eq!((starts(&plan), noted(&plan)), (None, vec!["FailedCreate"]));
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(240)));
    assert_eq!(starts(&taken.plan(10)), Some(10));
}

#[test]
fn two_runs_of_one_minute_are_one() {
    let often = case(json!({"schedule": "@every 20s"})).last(0);
    let due = |seconds: i64| {
        let cron_job = CronJob::decode(&often.cron_job.to_string(), &mut Interner::default()).unwrap();
        let now = Timestamp::from_second(at(0).as_second() + seconds).unwrap();
        let (zones, local_zone) = (&*ZONES, &UTC);
        let (jobs, taken) = (Vec::new(), BTreeSet::new());
        let plan = plan(&Observed {
            cron_job: &cron_job,
            jobs,
            taken,
            unreadable_jobs: 0,
            last_run: None,
            rescheduled: None,
            zones,
            local_zone,
            now,
        });
        assert_eq!(noted(&plan), ["TooFrequentSchedule"]);
        plan.start.map(|start| start.time.as_second() - at(0).as_second())
    };
    assert_eq!([due(19), due(20), due(40), due(60)], [None, None, None, Some(60)]);
}

#[test]
fn a_last_run_in_the_future_holds_nothing_up() {
    let plan = case(json!({})).last(10_000).plan(5);
    assert_eq!((starts(&plan), noted(&plan)), (Some(5), vec!["LastScheduleTimeInFuture"]));
    assert_eq!(plan.status.last_schedule, Some(at(10_000)), "it never falls");
    // A clock that is a little behind: the next time is not yet due.
    assert_eq!(starts(&case(json!({})).last(5).plan(4)), None);
    // A leader whose clock is behind by more than an interval repeats no run.
    assert_eq!(starts(&case(json!({})).last(30).plan(0)), None);
    // The runs of an older process are not known: an old Job is no reason to repeat those that came after it.
    let failed_once = case(json!({"schedule": "0 0 * * *"})).last(1_000_000).job(-14_400, Some("Failed"));
    assert_eq!(starts(&failed_once.plan(900)), None);
    // Each run begins later than its time.
    let late = case(json!({})).last(10_000).annotated("windlass.dev/jitter-seconds", "3600");
    assert!((5..70).any(|minute| starts(&late.plan(minute)).is_some()));
}

#[test]
fn a_run_that_a_wrong_clock_made_holds_nothing_up_and_is_not_written_again() {
    let mut jumped = case(json!({})).last(0);
    jumped.last_run = Some(at(10_000));
    let plan = jumped.plan(5);
    assert_eq!((starts(&plan), plan.status.last_schedule), (Some(5), Some(at(0))));
    // Its Job proves nothing either, and goes with the history.
    let limited = json!({"successfulJobsHistoryLimit": 0});
    let wrong = case(limited).last(0).job(10_000, Some("Complete"));
    assert_eq!(deleted(&wrong.plan(5)), [name(10_000)]);
}

#[test]
fn a_job_that_a_clock_ahead_has_started_is_kept_until_the_status_shows_it() {
    let limited = || case(json!({"successfulJobsHistoryLimit": 0}));
    assert_eq!(deleted(&limited().last(0).job(5, Some("Complete")).plan(4)), [""; 0]);
    assert_eq!(deleted(&limited().last(5).job(5, Some("Complete")).plan(4)), [name(5)]);
    // A status from a wrong clock shows nothing.
    assert_eq!(deleted(&limited().last(10_000).job(5, Some("Complete")).plan(6)), [""; 0]);
    assert_eq!(deleted(&limited().last(10_000).job(5, Some("Complete")).plan(200)), [name(5)]);
}

#[test]
fn an_annotation_that_is_not_understood_is_told_of_with_its_values() {
    for (annotation, value, values) in [
        ("windlass.dev/catch-up", "all", "latest or none"),
        ("windlass.dev/clock-change", "never", "robfig or once"),
        ("windlass.dev/replace", "", "at-once or after-pods"),
        ("windlass.dev/jitter-seconds", "3601", "a whole number of seconds from 0 to 3600"),
    ] {
        let plan = case(json!({})).last(0).annotated(annotation, value).plan(1);
        let message = format!("annotation {annotation}: {value:?} is not {values}; the default applies");
        let note = plan.notes.iter().find(|note| note.event.reason == "InvalidAnnotation");
        assert_eq!(note.map(|note| &note.event.message), Some(&message));
    }
}

#[test]
fn times_beyond_the_deadline_are_not_too_many() {
    let every_minute = |deadline: Value| {
        case(json!({"schedule": "* * * * *", "startingDeadlineSeconds": deadline})).last(0).plan(180)
    };
    assert!(noted(&every_minute(json!(null))).contains(&"TooManyMissedTimes"));
    assert!(!noted(&every_minute(json!(200))).contains(&"TooManyMissedTimes"));
    assert!(noted(&every_minute(json!(36_000))).contains(&"TooManyMissedTimes"));
}

#[test]
fn a_job_is_listed_once_whatever_the_last_run_says() {
    let running =
        case(json!({"schedule": "@every 20s"})).last(10_000).job(0, None).active(&format!("u-{}", name(0)));
    let plan = running.plan(0);
    assert_eq!(starts(&plan), None, "one Job a minute");
    let job = ActiveJob { name: "j".into(), uid: Uid::new(&format!("u-{}", name(0))), resource_version: 9 };
    let outcome = Outcome { deleted: BTreeSet::new(), started: Some((at(0), Some(job))) };
    assert_eq!(settled(&plan, &outcome).active.len(), 1);
}

#[test]
fn what_cannot_run_is_told_and_has_no_timer() {
    for (spec, reason) in [
        (json!({"schedule": "@often"}), "UnparseableSchedule"),
        (json!({"schedule": "0 0 31 2 *"}), "InvalidSchedule"),
        (json!({"timeZone": "Nowhere"}), "UnknownTimeZone"),
    ] {
        let plan = case(spec).plan(10);
        assert_eq!((noted(&plan), plan.requeue_after, starts(&plan)), (vec![reason], None, None));
        assert!(plan.reasons[0].to_string().starts_with("The CronJob cannot run: "), "{:?}", plan.reasons);
    }
    let zone = case(json!({"schedule": "TZ=Asia/Tokyo 0 19 * * *"})).plan(0);
    assert_eq!((noted(&zone), starts(&zone)), (vec!["UnsupportedSchedule"], Some(0)));
}

#[test]
fn an_edited_schedule_makes_up_a_past_time_unless_it_must_not() {
    let edited = || case(json!({"schedule": "58 * * * *"})).last(-20);
    assert_eq!(starts(&edited().plan(0)), Some(-2), "as upstream");
    assert_eq!(starts(&edited().annotated(crate::model::cronjob::CATCH_UP, "none").plan(0)), None);
    let punctual = case(json!({})).last(0).annotated(crate::model::cronjob::CATCH_UP, "none");
    assert_eq!(starts(&punctual.plan(5)), Some(5));
}

#[test]
fn jitter_delays_each_run_by_the_same_time() {
    let delayed = case(json!({})).last(0).annotated(crate::model::cronjob::JITTER, "240");
    let begins: Vec<i64> = (1..=10).filter(|minute| starts(&delayed.plan(*minute)) == Some(5)).collect();
    let first = begins[0];
    assert!((5..=9).contains(&first), "{begins:?}");
    let wait = delayed.plan(1).requeue_after.unwrap();
    assert!(wait > Duration::from_secs(240) && wait <= Duration::from_secs(480), "{wait:?}");
}

#[test]
fn an_explanation_names_what_a_run_waits_for() {
    let forbid = case(json!({"concurrencyPolicy": "Forbid", "timeZone": "Europe/Berlin"})).last(0);
    let busy = forbid.active(&format!("u-{}", name(0))).job(0, None);
    let sentences: Vec<String> = busy.plan(6).reasons.iter().map(ToString::to_string).collect();
    let forbidden = format!(
        "The run of 2026-01-01T10:05:00Z waits for Job {}, which has been running since 2026-01-01T10:00:00Z: runs \
         must not overlap (concurrencyPolicy: Forbid).",
        name(0)
    );
    let next = "The next run is due at 2026-01-01T11:10:00+01:00 (2026-01-01T10:10:00Z).";
    assert_eq!(sentences, [&*forbidden, next]);
}
