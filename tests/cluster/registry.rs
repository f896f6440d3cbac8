//! The parts of a new controller: a model, a plan, a file that implements `Controller`, and one entry. Here they
//! are the three modules of this file, and they run beside the daemon's own.
//!
//! And the tables of the documentation and of the chart are those of the registry.

use std::path::Path;

use serde_json::json;
use windlass::app::Controllers;
use windlass::controllers::registry::{self, CONTROLLERS, KINDS};
use windlass::engine::entry::{KindEntry, Registry};
use windlass_testkit::cluster::{Cluster, Daemon, unlimited};

/// The first file: what the controller knows of its kind.
mod model {
    use serde::Deserialize;
    use windlass::model::wire::MetaWire;
    use windlass::model::{Interner, Meta, Record, Resource};

    /// A Secret: how many entries it has, and how many it was last said to have.
    pub struct Secret {
        pub meta: Meta,
        pub entries: usize,
        pub said: Option<String>,
    }

    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        metadata: MetaWire<'a>,
        #[serde(default)]
        data: std::collections::BTreeMap<String, serde_json::Value>,
    }

    impl Record for Secret {
        const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Secret", plural: "secrets" };

        fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
            let Wire { metadata, data } = serde_json::from_str(json)?;
            let said = metadata.annotations.get(super::plan::ENTRIES).map(str::to_owned);
            Ok(Secret { meta: metadata.into_meta(interner)?, entries: data.len(), said })
        }

        fn meta(&self) -> &Meta {
            &self.meta
        }
    }
}

/// The second: what is to be done. Pure.
mod plan {
    use super::model::Secret;

    /// The annotation that counts the entries.
    pub const ENTRIES: &str = "example.com/entries";

    /// The new value of the annotation; `None` where it is right.
    pub fn plan(map: &Secret) -> Option<String> {
        let count = map.entries.to_string();
        (map.said.as_ref() != Some(&count)).then_some(count)
    }
}

/// The third: the controller.
mod controller {
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use serde_json::json;
    use windlass::engine::controller::{Executed, Settled};
    use windlass::engine::driver::Driver;
    use windlass::engine::entry::ControllerEntry;
    use windlass::engine::entry::Requests;
    use windlass::engine::setup::Setup;
    use windlass::engine::{Context, Controller, Worker};
    use windlass::model::Record;
    use windlass::runtime::request::PatchType;

    use super::model::Secret;
    use super::plan;

    pub static ENTRY: ControllerEntry = ControllerEntry {
        name: "secret-controller",
        aliases: &[],
        kind: Secret::RESOURCE,
        objects: "Secrets",
        flag: "concurrent-secret-syncs",
        workers: 1,
        queue: "secret",
        component: "secret-controller",
        watches: &[Secret::RESOURCE],
        stale_skips: None,
        is_on_by_default: true,
        is_upstream: false,
        requests: Requests::AS_CONFIGURED,
        install: |setup: &mut Setup| -> Box<dyn Worker> {
            let controller = Arc::new(Secrets { context: setup.context().clone() });
            Box::new(Driver::new(controller, &ENTRY, setup))
        },
    };

    struct Secrets {
        context: Arc<Context>,
    }

    impl Controller for Secrets {
        type Object = Secret;
        type Status = ();
        type Observed<'a> = &'a Secret;
        type Plan = Option<String>;
        type Outcome = ();

        fn in_scope(&self, map: &Secret) -> bool {
            self.context.settings().scope.selects(&map.meta)
        }

        fn observe<'a>(&self, map: &'a Secret, _: bool) -> &'a Secret {
            map
        }

        fn plan(&self, map: &&Secret) -> Option<String> {
            plan::plan(map)
        }

        fn execute<'a>(
            &'a self,
            map: &'a Secret,
            _: &'a &Secret,
            plan: &'a Option<String>,
        ) -> BoxFuture<'a, Executed<()>> {
            Box::pin(async move {
                let Some(count) = plan else { return Executed::new((), None) };
                let body = json!({"metadata": {"annotations": {plan::ENTRIES: count}}});
                let what = || format!("counting the entries of {}", map.meta.key);
                let path = Secret::RESOURCE.path_of(&map.meta.key);
                let written = self.context.patch(map, what, &path, PatchType::Merge, &body).await;
                let written =
                    written.map(|version| self.context.expect_write(map, Secret::RESOURCE, version));
                Executed::new((), written.err())
            })
        }

        fn settle(&self, _: &&Secret, _: &Option<String>, _: &Executed<()>) -> Settled<()> {
            Settled::default()
        }

        fn status<'a>(&self, _: &'a Secret) -> &'a () {
            &()
        }
    }
}

fn registry() -> Registry {
    registry::standard().with_kind(KindEntry::of::<model::Secret>(99)).with_controller(&controller::ENTRY)
}

#[tokio::test(start_paused = true)]
async fn a_new_controller_needs_three_files_and_an_entry_and_runs_beside_the_others() {
    let cluster = Cluster::new().await;
    let parts = cluster.parts(cluster.client.clone(), 1, None);
    let metrics = parts.metrics.clone();
    let daemon = Daemon::run(Controllers::with(&registry(), unlimited(), parts), metrics);
    let maps = "/api/v1/namespaces/shop/secrets";
    let map = json!({"metadata": {"name": "settings"}, "data": {"a": "MQ==", "b": "Mg=="}});
    cluster.call(http::Method::POST, maps, &map).await;
    let entries = |cluster: &Cluster| {
        let maps = cluster.objects("Secret");
        maps.iter()
            .find_map(|map| map["metadata"]["annotations"]["example.com/entries"].as_str().map(str::to_owned))
    };
    cluster.eventually(10, "the entries are counted", |c| entries(c).as_deref() == Some("2")).await;
    cluster.call(http::Method::PATCH, &format!("{maps}/settings"), &json!({"data": {"c": "Mw=="}})).await;
    cluster.eventually(10, "and counted again", |c| entries(c).as_deref() == Some("3")).await;
    let writes = cluster.writes();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(cluster.writes(), writes, "what is right is left alone");

    // Whatever a controller has comes with its entry: a queue with metrics, a health check, a readiness check.
    cluster.create(windlass_planner_testkit::objects::deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    let text = daemon.metrics.render();
    for line in [
        "workqueue_adds_total{name=\"secret\"}",
        "running_managed_controllers{manager=\"windlass\",name=\"secret-controller\"} 1",
        "windlass_informer_objects{group=\"\",resource=\"secrets\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    daemon.stop().await;
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_chart_knows_the_controllers_of_the_registry_and_no_others() {
    let helpers = read("charts/windlass/templates/_controllers.tpl");
    let listed = CONTROLLERS.map(|controller| format!("{:?}", controller.name)).join(" ");
    assert!(
        helpers.contains(&format!("range list {listed} -")),
        "the chart's list of controllers is not {listed}"
    );
    let rights = ["rbac.yaml", "namespace-controller.yaml", "garbage-collector.yaml"];
    let rights: String = rights.map(|file| read(&format!("charts/windlass/templates/{file}"))).concat();
    for controller in CONTROLLERS {
        let name = controller.name;
        assert!(rights.contains(&format!("has {name:?} $running")), "rbac.yaml has no rights for {name}");
    }
    for kind in &KINDS {
        let plural = kind.resource.plural;
        assert!(
            rights.contains(&format!("resources: [{plural}]")),
            "rbac.yaml does not allow to list {plural}"
        );
    }
    let schema: serde_json::Value =
        serde_json::from_str(&read("charts/windlass/values.schema.json")).unwrap();
    let schema = schema["properties"]["controllers"].to_string();
    for controller in CONTROLLERS {
        assert!(schema.contains(controller.short_name()), "values.schema.json: {}", controller.name);
    }
}

#[test]
fn the_documentation_has_the_table_of_the_registry() {
    let mut table = String::from("| Controller | Flag | Queue in metrics | Watches |\n|---|---|---|---|\n");
    for controller in CONTROLLERS {
        let watches: Vec<&str> = controller.watches.iter().map(|resource| resource.plural).collect();
        let (name, flag, queue) = (controller.name, controller.flag, controller.queue);
        table += &format!("| `{name}` | `--{flag}` | `{queue}` | {} |\n", watches.join(", "));
    }
    let page = read("docs/architecture.md");
    assert!(page.contains(&table), "docs/architecture.md should have this table:\n{table}");
}
