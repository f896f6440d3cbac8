//! The schedules of Kubernetes CronJobs, as upstream's controllers read them.
//!
//! kube-apiserver and kube-controller-manager use `ParseStandard` of `github.com/robfig/cron` v3. This crate reads the same
//! texts ([`Schedule::parse`]), refuses the same ones in the same words ([`ParseError`]), and computes the same times,
//! clock changes included ([`Schedule::next`]).
//!
//! | | here, as in robfig/cron |
//! |---|---|
//! | fields | minute, hour, day of the month, month, day of the week: five, separated by white space |
//! | a field | a list of `*`, `?`, `a`, `a-b`, each with `/step`; months and days of the week by three letters |
//! | day and weekday | both must match if one of them is a star; else either |
//! | names | `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`, `@hourly`, `@every 1h30m` |
//! | a zone | `TZ=Europe/Berlin` or `CRON_TZ=Europe/Berlin` before the rest |
//! | a time that the clocks skip | does not run that day |
//! | a time that the clocks repeat | runs twice |
//!
//! # Other crates
//! None has this grammar and this behaviour. `croner` 4 also takes seconds, years, `L`, `W`, `#` and weekday 7, takes `a/step`
//! only on request, knows no `@every` and no `@midnight`, runs a skipped time right after the gap and a repeated time once.
//! `cron` 0.17 and its port `jiff-cron` 0.3 require a field for seconds, count Sunday as 1, and demand day **and** weekday.
//! `saffron` 0.1 is a Quartz dialect in UTC. A check around one of them would be a second parser.
#![doc = include_str!("../README.md")]

mod duration;
mod field;
mod next;
mod parse;
mod zone;

pub use parse::{ParseError, Schedule};
pub use zone::{UnknownZone, zone};
