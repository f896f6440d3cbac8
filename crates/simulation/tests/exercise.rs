//! The game of the exercise: what a new controller costs in the simulation. One file, of which the engine plays seeds, shrinks
//! failures and saves replays as of any other game.

#[path = "../../../tests/cluster/registry/secret_entries.rs"]
mod secret_entries;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass::config::Enabled;
use windlass_apiserver::Sandbox;
use windlass_simulation::engine::any_game::AnyGame as _;
use windlass_simulation::engine::breach::Breach;
use windlass_simulation::engine::call::Call;
use windlass_simulation::engine::daemons::{Daemons, unlimited};
use windlass_simulation::engine::game::{self, Game, Stage, Staged, Trial};
use windlass_simulation::engine::network::{self, Cluster, Faults, Moment};
use windlass_simulation::engine::outcome::Outcome;
use windlass_simulation::engine::replay::{StaticName, bug, steps};
use windlass_simulation::engine::runner;
use windlass_simulation::engine::user::{JSON, MERGE, User};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// The scenario: users create, change and delete Secrets, and the daemon is killed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    seed: u64,
    #[serde(default, deserialize_with = "bug", skip_serializing_if = "str::is_empty")]
    bug: StaticName,
    faults: Faults,
    #[serde(with = "steps")]
    acts: Vec<(Duration, Act)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Act {
    /// A Secret, and the entry that it gets, or loses.
    Set(u8, u8, bool),
    Delete(u8),
    BreakWatches,
    Crash,
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut percent = || rng.u8(..8);
        let faults = Faults {
            lost_requests: percent(),
            lost_replies: percent(),
            late_requests: percent(),
            late_replies: percent(),
            refusals: 0,
        };
        let mut at = Duration::ZERO;
        let mut step = || {
            at += Duration::from_millis(rng.u64(..1500));
            let act = match rng.u8(..20) {
                0..14 => Act::Set(rng.u8(..4), rng.u8(..4), rng.bool()),
                14..17 => Act::Delete(rng.u8(..4)),
                17..19 => Act::BreakWatches,
                _ => Act::Crash,
            };
            (at, act)
        };
        Scenario { seed, bug: "", faults, acts: (0..60).map(|_| step()).collect() }
    }

    windlass_simulation::seed_and_bug!();
}

/// The judge: the daemon writes nothing but its annotation (E1). E2 and E3 are judged in [`Exercise::converge`].
#[derive(Default)]
struct Judge {
    writes: u64,
}

fn secrets(sandbox: &Sandbox) -> Vec<Value> {
    let mut all = sandbox.objects("Secret");
    for secret in &mut all {
        for field in ["resourceVersion", "managedFields"] {
            secret["metadata"].as_object_mut().unwrap().remove(field);
        }
    }
    all
}

fn without_annotation(mut secrets: Vec<Value>) -> Vec<Value> {
    secrets
        .iter_mut()
        .for_each(|secret| drop(secret["metadata"].as_object_mut().unwrap().remove("annotations")));
    secrets
}

impl network::Judge for Judge {
    type Before = Vec<Value>;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Vec<Value>> {
        (call.of_daemon() && call.resource == "secrets").then(|| secrets(sandbox))
    }

    fn committed(&mut self, moment: Moment<'_>, before: Vec<Value>) -> Result<(), Breach> {
        let after = secrets(moment.sandbox);
        self.writes += u64::from(before != after);
        match without_annotation(before) == without_annotation(after) {
            true => Ok(()),
            false => Err(Breach::new("E1", format!("more than the annotation: {}", moment.call))),
        }
    }
}

/// The actors: a user, and the supervisor of the daemons.
struct Actors {
    cluster: Arc<Cluster<Judge>>,
    user: User,
    daemons: Daemons<Judge>,
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        self.daemons.start();
    }

    async fn act(&mut self, act: &Act) {
        let path = |secret: u8| format!("{SECRETS}/s{secret}");
        match *act {
            Act::Set(secret, entry, is_set) => {
                let new = json!({"metadata": {"name": format!("s{secret}")}});
                self.user.send(Method::POST, SECRETS, JSON, &new).await;
                let value = if is_set { json!("MQ==") } else { Value::Null };
                let change = json!({"data": {format!("e{entry}"): value}});
                self.user.send(Method::PATCH, &path(secret), MERGE, &change).await;
            }
            Act::Delete(secret) => {
                drop(self.user.send(Method::DELETE, &path(secret), JSON, &json!({})).await)
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Crash => self.daemons.crash().await,
        }
    }

    fn end(&mut self) {
        self.daemons.end();
    }
}

struct Exercise;

impl Game for Exercise {
    const NAME: &'static str = "exercise";
    const BUGS: &'static [&'static str] = &[];
    const RESOURCES: &'static [&'static str] = &["secrets"];
    const TRIAL: Trial = Trial { seeds: 0..30, once_failed: &[], planted: 0..0 };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for Exercise {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        Stage { faults: scenario.faults, acts: &scenario.acts, nodes: None }
    }

    fn judge(_: &Scenario) -> Judge {
        Judge::default()
    }

    fn actors(cluster: &Arc<Cluster<Judge>>, scenario: &Scenario) -> Actors {
        let config = unlimited(Enabled::none().with("secret-controller"));
        let daemons =
            Daemons::new(cluster.clone(), config, scenario.seed, |seed, life| seed + u64::from(life));
        let daemons = daemons.of(secret_entries::registry());
        Actors { cluster: cluster.clone(), user: User(cluster.client("user")), daemons }
    }

    async fn converge(cluster: &Arc<Cluster<Judge>>, _: &mut Actors, _: &Scenario) -> Result<(), Breach> {
        cluster.calm();
        tokio::time::sleep(Duration::from_secs(60)).await;
        for secret in secrets(&cluster.sandbox) {
            let entries = secret["data"].as_object().map_or(0, serde_json::Map::len).to_string();
            if secret["metadata"]["annotations"]["example.com/entries"] != *entries {
                return Err(Breach::new("E2", format!("it has {entries} entries: {secret}")));
            }
        }
        let writes = cluster.with_judge(|judge| judge.writes);
        tokio::time::sleep(Duration::from_secs(600)).await;
        match cluster.with_judge(|judge| judge.writes) - writes {
            0 => Ok(()),
            more => Err(Breach::new("E3", format!("{more} writes without work"))),
        }
    }
}

#[test]
fn a_game_for_a_new_controller_is_one_file() {
    let mut requests = 0;
    for seed in Exercise::TRIAL.seeds {
        let outcome = Exercise.play(seed, "", false).unwrap();
        assert!(outcome.failure.is_none(), "seed {seed}: {}", outcome.failure.unwrap());
        requests += outcome.requests;
    }
    assert!(requests > 3000, "{requests} requests");
}
