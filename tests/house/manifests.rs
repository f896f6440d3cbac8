//! The manifests that ship are what an API server takes: strictly of their types, restricted, of one piece, and
//! they come up on the sandbox.
//!
//! `deploy/` is looked at always. With `WINDLASS_RENDERED`, a folder that `.ci/chart check` has filled, so is what
//! the chart renders for each of its files of values.

mod fields;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fields::unknown_fields;
use http::Method;
use serde_json::{Value, json};
use windlass_testkit::cluster::Cluster;
use windlass_testkit::manifests::{self, collection, objects};
use windlass_testkit::rights;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One installation: where it is from, and its objects.
struct Installation {
    origin: String,
    objects: Vec<Value>,
}

impl Installation {
    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The templates of its own pods, by kind and name of what makes them; the bootstrap may be a pod itself.
    fn templates(&self) -> BTreeMap<String, &Value> {
        let workloads = ["Deployment", "StatefulSet", "Job"].into_iter().flat_map(|kind| self.of(kind));
        let templates = workloads.map(|it| (title(it), &it["spec"]["template"]));
        templates.chain(self.bootstrap_pods().map(|pod| (title(pod), pod))).collect()
    }

    fn bootstrap_pods(&self) -> impl Iterator<Item = &Value> {
        self.of("Pod").filter(|pod| !is_test(pod))
    }

    fn test_pods(&self) -> impl Iterator<Item = &Value> {
        self.of("Pod").filter(|pod| is_test(pod))
    }
}

/// Whether `helm test` runs the pod.
fn is_test(pod: &Value) -> bool {
    pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
}

fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// All of `deploy/`, as one.
fn deployed() -> Installation {
    let folders = [root().join("deploy"), root().join("deploy/monitoring")];
    let texts = folders.iter().flat_map(|folder| manifests::yaml_files(folder)).map(read);
    Installation { origin: "deploy".into(), objects: texts.flat_map(|text| objects(&text)).collect() }
}

fn installations() -> Vec<Installation> {
    let mut all = vec![deployed()];
    all.extend(manifests::rendered().into_iter().map(|(origin, objects)| Installation { origin, objects }));
    all
}

#[test]
fn every_field_of_a_manifest_exists_in_the_kubernetes_api() {
    let mut number = 0;
    for Installation { origin, objects } in installations() {
        for object in objects {
            number += 1;
            assert_eq!(unknown_fields(&object), [""; 0], "{origin}: {}", title(&object));
        }
    }
    assert!(number > 10, "only {number}");
    let typo = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replica": 1,
        "selector": {}, "template": {"spec": {"containers": [{"name": "a", "portz": 1}]}}}});
    assert_eq!(unknown_fields(&typo), ["spec.?.replica", "spec.?.template.?.spec.?.containers.?.0.portz"]);
}

/// The rules of the Pod Security Standard "restricted", as far as they concern these pods.
fn breaches_of_restricted(spec: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            breaches.push(what.to_owned());
        }
    };
    let security = &spec["securityContext"];
    expect(security["runAsNonRoot"] == true, "runAsNonRoot");
    expect(security["runAsUser"] != 0, "runAsUser");
    expect(security["seccompProfile"]["type"] == "RuntimeDefault", "seccompProfile");
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        expect(spec[host].is_null(), host);
    }
    let kinds = ["configMap", "emptyDir", "projected", "secret", "downwardAPI"];
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        expect(kinds.iter().any(|kind| !volume[kind].is_null()), "volumes");
    }
    let lists =
        ["initContainers", "containers"].map(|list| spec[list].as_array().cloned().unwrap_or_default());
    for container in lists.concat() {
        let security = &container["securityContext"];
        expect(security["allowPrivilegeEscalation"] == false, "allowPrivilegeEscalation");
        expect(security["capabilities"] == json!({"drop": ["ALL"]}), "capabilities");
        expect(security["readOnlyRootFilesystem"] == true, "readOnlyRootFilesystem");
    }
    breaches
}

#[test]
fn every_pod_is_restricted() {
    for installation in installations() {
        let test = installation.test_pods().map(|pod| (title(pod), pod));
        let tested = installation
            .of("ConfigMap")
            .filter_map(|it| it["data"]["deployment.yaml"].as_str())
            .flat_map(objects)
            .map(|it| (title(&it), it["spec"]["template"].clone()));
        let all: Vec<(String, Value)> = installation
            .templates()
            .into_iter()
            .chain(test)
            .map(|(a, b)| (a, b.clone()))
            .chain(tested)
            .collect();
        assert!(!all.is_empty());
        // Where, as whom and from which registry Windlass runs, `helm test` can run too: OpenShift wants no user of
        // ours.
        let (_, first) = installation.templates().pop_first().unwrap();
        for (title, pod) in &all {
            for field in ["securityContext", "nodeSelector", "tolerations", "imagePullSecrets"] {
                let (own, wanted) = (&pod["spec"][field], &first["spec"][field]);
                assert_eq!(own, wanted, "{}: {title}: {field}", installation.origin);
            }
        }
        for (title, pod) in all {
            let mut breaches = breaches_of_restricted(&pod["spec"]);
            if title.ends_with("-test") {
                // Its image is a third party's, and needs no file of its own.
                breaches.retain(|breach| breach != "readOnlyRootFilesystem");
            }
            if installation.origin.starts_with("host-network") {
                breaches.retain(|breach| breach != "hostNetwork");
            }
            assert_eq!(breaches, [""; 0], "{}: {title}", installation.origin);
        }
    }
}

/// Another controller manager must run the bootstrap, and it must not end.
#[test]
fn the_bootstrap_is_not_of_a_kind_that_windlass_itself_runs() {
    for installation in installations() {
        let origin = &installation.origin;
        let (_, template) = installation.templates().pop_first().unwrap();
        let arguments = template["spec"]["containers"][0]["args"].as_array().unwrap();
        let controllers = arguments[0].as_str().unwrap().strip_prefix("--controllers=").unwrap();
        let runs = |name: &str| {
            let mut list = controllers.split(',');
            list.clone().all(|other| !other.starts_with(&format!("-{name}")))
                && list.any(|other| other == "*" || other.starts_with(name))
        };
        let (runs_stateful_sets, runs_jobs) = (runs("statefulset"), runs("job"));
        for job in installation.of("Job") {
            assert!(runs_stateful_sets && !runs_jobs, "{origin}: {}", title(job));
            let spec = &job["spec"];
            for field in ["completions", "backoffLimit"] {
                assert_eq!(spec[field], i32::MAX, "{origin}: {field}");
            }
            assert_eq!(spec["parallelism"], 1, "{origin}");
            assert_eq!(spec["template"]["spec"]["restartPolicy"], "OnFailure", "{origin}");
        }
        for set in installation.of("StatefulSet") {
            assert!(!runs_stateful_sets, "{origin}: {}", title(set));
        }
        // A bare pod is created by whoever installs it.
        for pod in installation.bootstrap_pods() {
            assert!(runs_stateful_sets && runs_jobs, "{origin}: {}", title(pod));
            // Always, if nothing is said.
            assert!([Value::Null, json!("Always")].contains(&pod["spec"]["restartPolicy"]), "{origin}");
        }
        let others = installation.of("Job").chain(installation.of("StatefulSet"));
        let number = others.chain(installation.bootstrap_pods()).count();
        assert_eq!(number, usize::from(!origin.starts_with("least")), "{origin}");
    }
}

/// Whether a pod with these labels is selected.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().unwrap();
    !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value)
}

#[test]
fn pod_selectors_match_only_the_pods_of_this_installation() {
    for installation in installations() {
        let origin = &installation.origin;
        let templates = installation.templates();
        for kind in ["Deployment", "StatefulSet"] {
            for owner in installation.of(kind) {
                let selector = &owner["spec"]["selector"]["matchLabels"];
                let selected: Vec<_> = templates
                    .iter()
                    .filter(|(_, template)| selects(selector, &template["metadata"]["labels"]))
                    .map(|(title, _)| title.clone())
                    .collect();
                assert_eq!(selected, [title(owner)], "{origin}");
            }
        }
        // A budget with a pod of a Job, which has no scale, allows no eviction.
        let shared = [
            ("Service", "/spec/selector", true),
            ("PodDisruptionBudget", "/spec/selector/matchLabels", false),
            ("NetworkPolicy", "/spec/podSelector/matchLabels", true),
        ];
        for (kind, pointer, takes_bootstrap) in shared {
            for object in installation.of(kind) {
                let selector = object.pointer(pointer).unwrap();
                for (title, template) in &templates {
                    let labels = &template["metadata"]["labels"];
                    let is_wanted = takes_bootstrap || title.starts_with("Deployment/");
                    assert_eq!(selects(selector, labels), is_wanted, "{origin}: {kind}, {title}");
                }
                for test in installation.test_pods() {
                    assert!(
                        !selects(selector, &test["metadata"]["labels"]),
                        "{origin}: {kind} takes the test's"
                    );
                }
            }
        }
    }
}

#[test]
fn probes_use_always_allowed_paths_on_the_served_port() {
    for installation in installations() {
        for (title, template) in installation.templates() {
            let container = &template["spec"]["containers"][0];
            let arguments: BTreeSet<&str> =
                container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
            let port = &container["ports"][0];
            assert!(
                arguments.contains(format!("--secure-port={}", port["containerPort"]).as_str()),
                "{title}"
            );
            for (probe, path) in
                [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
            {
                let request = json!({"path": path, "port": port["name"], "scheme": "HTTPS"});
                assert_eq!(container[probe]["httpGet"], request, "{}: {title}", installation.origin);
            }
            // The token is this pod's own, and no variable of a Service becomes a setting.
            assert_eq!(template["spec"]["automountServiceAccountToken"], false);
            assert_eq!(template["spec"]["enableServiceLinks"], false);
        }
    }
}

/// The ServiceAccount that an installation's pods have, as the API server names it.
fn user(installation: &Installation) -> String {
    let deployment = installation.of("Deployment").next().unwrap();
    let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap();
    format!("system:serviceaccount:{namespace}:{account}")
}

#[test]
fn rights_and_the_admission_policy_are_for_the_account_of_the_pods() {
    for installation in installations() {
        let (origin, user) = (&installation.origin, user(&installation));
        // Those of rollout policies are for everybody.
        let is_its_own = |policy: &&Value| {
            !["-rollout-policy", "-approval"].iter().any(|end| title(policy).ends_with(end))
        };
        for policy in installation.of("ValidatingAdmissionPolicy").filter(is_its_own) {
            let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
            assert_eq!(condition, format!("request.userInfo.username == '{user}'"), "{origin}");
        }
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            let others = ["-metrics-reader", "-test"];
            let is_its_own = |binding: &&Value| !others.iter().any(|end| title(binding).ends_with(end));
            for binding in installation.of(kind).filter(is_its_own) {
                let [subject] = &binding["subjects"].as_array().unwrap()[..] else { panic!("{binding}") };
                let text = |field: &str| subject[field].as_str().unwrap();
                let named = format!("system:serviceaccount:{}:{}", text("namespace"), text("name"));
                assert_eq!(named, user, "{origin}: {}", title(binding));
            }
        }
        for schema in installation.of("FlowSchema") {
            for rule in schema["spec"]["rules"].as_array().unwrap() {
                let [subject] = &rule["subjects"].as_array().unwrap()[..] else { panic!("{schema}") };
                let text = |field: &str| subject["serviceAccount"][field].as_str().unwrap();
                let named = format!("system:serviceaccount:{}:{}", text("namespace"), text("name"));
                assert_eq!(named, user, "{origin}: {}", title(schema));
            }
        }
        let argument = |start: &str| {
            let (_, template) = installation.templates().pop_first().unwrap();
            let arguments = template["spec"]["containers"][0]["args"].as_array().unwrap();
            let mut found = arguments.iter().filter_map(|it| it.as_str().unwrap().strip_prefix(start));
            found.next().map(str::to_owned)
        };
        let lease = argument("--leader-elect-resource-name=").unwrap();
        for role in installation.of("Role").filter(|role| title(role).ends_with("-leader-election")) {
            assert_eq!(role["rules"][1]["resourceNames"], json!([lease]), "{origin}");
            let namespace = argument("--leader-elect-resource-namespace=").unwrap();
            assert_eq!(role["metadata"]["namespace"], *namespace, "{origin}");
            // Releases without a scope meet there, whatever their namespaces.
            let is_scoped = argument("--namespace=").is_some() || argument("--selector=").is_some();
            if !is_scoped && !origin.starts_with("lease") {
                assert_eq!(namespace, "kube-system", "{origin}");
            }
        }
    }
}

#[test]
fn requests_have_the_priority_level_of_kube_controller_manager_and_the_lease_that_of_elections() {
    let deployed = deployed();
    let levels: BTreeMap<String, (&Value, i64)> = deployed
        .of("FlowSchema")
        .map(|schema| {
            let spec = &schema["spec"];
            let precedence = spec["matchingPrecedence"].as_i64().unwrap();
            (title(schema), (&spec["priorityLevelConfiguration"]["name"], precedence))
        })
        .collect();
    let ("workload-high", all) =
        (levels["FlowSchema/windlass"].0.as_str().unwrap(), levels["FlowSchema/windlass"].1)
    else {
        panic!("{levels:?}")
    };
    let lease = levels["FlowSchema/windlass-leader-election"];
    assert_eq!(lease.0, "leader-election");
    // Smaller comes first: the built-in schemas of service accounts and of elections are at 9000 and 200.
    assert!(lease.1 < all && lease.1 < 200 && all < 9000);
    let schema = deployed.of("FlowSchema").find(|it| title(it).ends_with("-leader-election")).unwrap();
    let (_, template) = deployed.templates().pop_first().unwrap();
    let namespace = schema["spec"]["rules"][0]["resourceRules"][0]["namespaces"][0].as_str().unwrap();
    let argument = format!("--leader-elect-resource-namespace={namespace}");
    assert!(template["spec"]["containers"][0]["args"].as_array().unwrap().contains(&argument.into()));
}

/// The rights of an installation of the chart with this file of values.
fn granted(values: &str) -> (rights::Rights, BTreeSet<String>) {
    let folder = PathBuf::from(std::env::var_os("WINDLASS_RENDERED").expect("WINDLASS_RENDERED is set"));
    let objects = objects(&read(folder.join(format!("{values}.yaml"))));
    let own: Vec<Value> = objects
        .into_iter()
        .filter(|it| !title(it).ends_with("-test") && !title(it).ends_with("-leader-election"))
        .collect();
    let kinds = own.iter().filter(|it| !it["rules"].is_null()).map(title).collect();
    (rights::granted(&own), kinds)
}

#[test]
#[ignore = "needs WINDLASS_RENDERED, which `.ci/chart check` fills"]
fn a_disabled_controller_has_no_write_permissions() {
    for (values, gone, left) in [
        (
            "deployments-only",
            &["create pods", "patch replicasets.apps/status"][..],
            "create replicasets.apps",
        ),
        (
            "replicasets-only",
            &["create replicasets.apps", "patch deployments.apps", "list controllerrevisions.apps"],
            "create pods",
        ),
        (
            "without-replicationcontrollers",
            &["list replicationcontrollers", "patch replicationcontrollers/status"],
            "list replicasets.apps",
        ),
        ("daemonsets-only", &["list replicasets.apps", "list deployments.apps"], "list nodes"),
        ("without-daemonsets", &["list nodes", "list daemonsets.apps"], "create controllerrevisions.apps"),
        (
            "statefulsets-only",
            &["list nodes", "list daemonsets.apps", "delete persistentvolumeclaims"],
            "create controllerrevisions.apps",
        ),
        (
            "without-statefulsets",
            &["list persistentvolumeclaims", "list statefulsets.apps", "update pods/finalizers"],
            "create controllerrevisions.apps",
        ),
    ] {
        let (granted, _) = granted(&format!("{values}-kube-system"));
        assert!(granted.contains(left), "{values}: {granted:?}");
        let there: Vec<_> = gone.iter().filter(|right| granted.contains(**right)).collect();
        assert!(there.is_empty(), "{values}: {there:?}");
    }
    let (_, roles) = granted("own-namespace-kube-system");
    assert_eq!(roles, BTreeSet::from(["Role/windlass".to_owned()]), "no rights outside of the namespace");
    let all = manifests::rendered().into_iter().find(|(origin, _)| origin == "own-namespace-kube-system");
    for object in all.unwrap().1 {
        assert_eq!(
            object["metadata"]["namespace"],
            "kube-system",
            "{} needs rights elsewhere",
            title(&object)
        );
    }
}

#[test]
fn the_version_is_the_same_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    let chart: Value = manifests::object(&read("charts/windlass/Chart.yaml"));
    assert_eq!([&chart["version"], &chart["appVersion"]], [version, version]);
    let kustomization: Value = manifests::object(&read("deploy/kustomization.yaml"));
    assert_eq!(kustomization["images"][0]["newTag"], version);
    let image = format!("{}:{version}", kustomization["images"][0]["name"].as_str().unwrap());
    for (title, template) in deployed().templates() {
        assert_eq!(template["spec"]["containers"][0]["image"], *image, "{title}");
    }
}

#[test]
fn the_example_clusters_and_the_alert_disable_the_controllers_that_windlass_runs() {
    let off = "-deployment-controller,-replicaset-controller,-replicationcontroller-controller,-daemonset-controller,-statefulset-controller,-cronjob-controller,-ttl-after-finished-controller";
    let kind: Value = manifests::object(&read("deploy/clusters/kind.yaml"));
    let patch: Value = manifests::object(kind["kubeadmConfigPatches"][0].as_str().unwrap());
    let controllers = patch["controllerManager"]["extraArgs"]["controllers"].as_str().unwrap();
    assert_eq!(controllers, format!("*,bootstrapsigner,tokencleaner,{off}"));
    let k3d: Value = manifests::object(&read("deploy/clusters/k3d.yaml"));
    let argument = k3d["options"]["k3s"]["extraArgs"][0]["arg"].as_str().unwrap();
    assert_eq!(argument, format!("--kube-controller-manager-arg=controllers+={off}"));
    assert!(
        read("charts/windlass/files/prometheus-rules.yaml").contains(&format!("add {off} to --controllers"))
    );
}

/// No image is published yet, so the chart's own would never be pulled.
#[test]
fn the_installation_instructions_build_an_image() {
    for file in [
        "README.md",
        "docs/install.md",
        "charts/windlass/README.md",
        "deploy/clusters/kind.yaml",
        "deploy/clusters/k3d.yaml",
    ] {
        let text = read(file);
        let (before, after) = text.split_once("helm install windlass charts/windlass").unwrap();
        assert!(before.contains("docker build --tag "), "{file} builds none");
        let command: String = after.split_inclusive('\n').take(2).collect();
        assert!(command.contains("--set image.repository="), "{file} names none: {command}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_installation_rolls_out_on_the_sandbox() {
    for installation in installations() {
        let cluster = Cluster::new().await;
        let _daemon = cluster.start_controllers(1);
        for name in ["kube-system", "windlass", "monitoring"] {
            let namespace = json!({"metadata": {"name": name}});
            let _ = cluster.try_call(Method::POST, "/api/v1/namespaces", &namespace).await; // Some are there.
        }
        // The nodes are there by then. One file of values wants control-plane nodes.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let nodes = cluster.call(Method::GET, "/api/v1/nodes", &Value::Null).await;
        for node in nodes["items"].as_array().unwrap() {
            let path = format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap());
            let labels = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
            cluster.call(Method::PATCH, &path, &labels).await;
        }
        let deployment = installation.of("Deployment").next().unwrap();
        // Certificates come from the user.
        let secrets =
            format!("/api/v1/namespaces/{}/secrets", deployment["metadata"]["namespace"].as_str().unwrap());
        let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().into_iter().flatten();
        for name in volumes.filter_map(|volume| volume["secret"]["secretName"].as_str()) {
            cluster.call(Method::POST, &secrets, &json!({"metadata": {"name": name}})).await;
        }
        for object in &installation.objects {
            // The operator's kinds are not served there.
            if object["apiVersion"] != "monitoring.coreos.com/v1" {
                let path = format!("{}?fieldValidation=Strict", collection(object));
                cluster.call(Method::POST, &path, object).await;
            }
        }
        let path = format!("{}/{}", collection(deployment), deployment["metadata"]["name"].as_str().unwrap());
        let replicas = &deployment["spec"]["replicas"];
        let mut status = Value::Null;
        for _ in 0..120 {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            status = cluster.call(Method::GET, &path, &Value::Null).await["status"].clone();
            if status["availableReplicas"] == *replicas {
                break;
            }
        }
        assert_eq!(status["availableReplicas"], *replicas, "{}: {status}", installation.origin);
    }
}
