//! The daemon's controllers against the embedded API server, in one process and in virtual time.

mod coexistence;
mod daemon_sets;
mod discovery;
mod election;
mod explain;
mod faults;
mod garbage;
mod handover;
mod log;
mod metadata_encodings;
mod missing_rights;
mod namespaces;
mod operations;
mod owners;
mod pod_encodings;
mod pod_names;
mod registry;
mod replica_set_races;
mod replica_sets;
mod restored_history;
mod rolling_updates;
mod scenarios;
mod statuses;
mod takeover;
mod test_bed;
mod unreadable;
