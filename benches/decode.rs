//! The time to decode one object off the wire: into our record, and into the typed form of
//! k8s-openapi. `cargo bench --bench decode`. Compare the rows; single figures depend on the machine.

mod support;

use divan::{Bencher, black_box};
use k8s_openapi::api::apps::v1::ReplicaSet as TypedReplicaSet;
use k8s_openapi::api::core::v1::Pod as TypedPod;
use windlass::model::{Interner, Pod, Record, ReplicaSet};

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

fn record<T: Record>(bencher: Bencher<'_, '_>, json: &str) {
    let mut interner = Interner::default();
    bencher.bench_local(|| T::decode(black_box(json), &mut interner).unwrap());
}

#[divan::bench]
fn pod_record(bencher: Bencher<'_, '_>) {
    record::<Pod>(bencher, &support::pod(1));
}

#[divan::bench]
fn pod_typed(bencher: Bencher<'_, '_>) {
    let json = support::pod(1);
    bencher.bench_local(|| serde_json::from_str::<TypedPod>(black_box(&json)).unwrap());
}

#[divan::bench]
fn replica_set_record(bencher: Bencher<'_, '_>) {
    record::<ReplicaSet>(bencher, &support::replica_set(1));
}

#[divan::bench]
fn replica_set_typed(bencher: Bencher<'_, '_>) {
    let json = support::replica_set(1);
    bencher.bench_local(|| serde_json::from_str::<TypedReplicaSet>(black_box(&json)).unwrap());
}
