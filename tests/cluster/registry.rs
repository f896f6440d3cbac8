//! The controller of the exercise, `registry/secret_entries.rs`, beside the daemon's own. And the tables of the
//! documentation and of the chart are those of the registry.

mod secret_entries;

use std::path::Path;

use serde_json::json;
use windlass::app::Controllers;
use windlass::controllers::registry::{CONTROLLERS, KINDS};
use windlass_testkit::cluster::{Cluster, Daemon, unlimited};

#[tokio::test(start_paused = true)]
async fn a_new_controller_needs_three_files_and_an_entry_and_runs_beside_the_others() {
    let cluster = Cluster::new().await;
    let parts = cluster.parts(cluster.client.clone(), 1, None);
    let metrics = parts.metrics.clone();
    let daemon = Daemon::run(Controllers::with(&secret_entries::registry(), unlimited(), parts), metrics);
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
    let rights = ["rbac.yaml", "namespace-controller.yaml", "garbage-collector.yaml", "resource-quota.yaml"];
    let rights: String = rights.map(|file| read(&format!("charts/windlass/templates/{file}"))).concat();
    for controller in CONTROLLERS {
        let name = controller.name;
        assert!(rights.contains(&format!("has {name:?} $running")), "rbac.yaml has no rights for {name}");
    }
    for kind in &KINDS {
        let plural = kind.resource.plural;
        // By itself, or in the list of the kinds that have a history.
        let rules = [format!("resources: [{plural}]"), format!("append $histories {plural:?}")];
        assert!(rules.iter().any(|rule| rights.contains(rule)), "rbac.yaml does not allow to list {plural}");
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
