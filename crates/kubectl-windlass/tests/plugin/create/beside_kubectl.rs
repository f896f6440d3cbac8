//! The same manifests to `kubectl create -f` and to the plugin, each on a sandbox of its own with the same seed: what is
//! printed, the exit codes and all objects afterwards are equal but for the differences that docs/plugin.md lists.

use std::process::Stdio;

use serde_json::{Value, json};

use super::{WIDGET, WIDGETS, map, server};
use crate::harness::{Ended, PLUGIN, Sandbox, kubectl};

/// All collections that the cases write to.
const COLLECTIONS: [&str; 7] = [
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/api/v1/secrets",
    "/api/v1/replicationcontrollers",
    "/apis/apps/v1/deployments",
    "/apis/example.com/v1/widgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
];

/// The two programs, and a folder with manifests.
struct Both {
    ours: Sandbox,
    theirs: Sandbox,
    kubectl: std::path::PathBuf,
    /// Where the files of a case are.
    folder: tempfile::TempDir,
}

impl Both {
    fn start() -> Self {
        Both { ours: server(), theirs: server(), kubectl: kubectl(), folder: tempfile::tempdir().unwrap() }
    }

    /// Runs one of the two in the folder.
    fn one(&self, is_ours: bool, args: &[&str], stdin: &str) -> Ended {
        let sandbox = if is_ours { &self.ours } else { &self.theirs };
        let program = if is_ours { PLUGIN.into() } else { self.kubectl.clone() };
        let mut command = sandbox.command(program, &[&["create"], args].concat());
        let input = self.folder.path().join(".stdin");
        std::fs::write(&input, stdin).unwrap();
        command.current_dir(self.folder.path()).env("HOME", sandbox.file("home"));
        Ended::of(&command.stdin(Stdio::from(std::fs::File::open(input).unwrap())).output().unwrap())
    }

    /// Runs both with these files.
    fn run(&self, files: &[(&str, &str)], args: &[&str]) -> (Ended, Ended) {
        for (name, text) in files {
            let path = self.folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let stdin = files.first().map_or("", |(_, text)| text);
        (self.one(true, args, stdin), self.one(false, args, stdin))
    }

    /// The same output and exit code, and the same objects afterwards.
    #[track_caller]
    fn agree(&self, code: i32, files: &[(&str, &str)], args: &[&str]) -> Ended {
        let (ours, theirs) = self.run(files, args);
        assert_eq!(ours.out, theirs.out, "{args:?}: ours {ours:?}, kubectl's {theirs:?}");
        let codes = (ours.code, theirs.code);
        assert_eq!(codes, (Some(code), Some(code)), "{args:?}: ours {ours:?}, kubectl's {theirs:?}");
        assert_eq!(
            ours.err.is_empty(),
            theirs.err.is_empty(),
            "{args:?}: ours {ours:?}, kubectl's {theirs:?}"
        );
        let (ours_there, theirs_there) = (objects(&self.ours), objects(&self.theirs));
        assert_eq!(ours_there, theirs_there, "{args:?}: ours {ours:?}, kubectl's {theirs:?}");
        ours
    }

    /// A difference that is kept on purpose: the exit codes, and what ours says.
    #[track_caller]
    fn differ(&self, ours: i32, theirs: i32, part: &str, files: &[(&str, &str)], args: &[&str]) {
        let (we, they) = self.run(files, args);
        assert_eq!((we.code, they.code), (Some(ours), Some(theirs)), "{args:?}: {we:?} {they:?}");
        assert!(we.err.contains(part), "{part:?}: {we:?}");
    }
}

/// All objects, without what differs between two runs of anything.
fn objects(sandbox: &Sandbox) -> Vec<Value> {
    let all = COLLECTIONS.iter().flat_map(|path| match sandbox.get(path)["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    });
    let without_identity = |mut object: Value| {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            ["uid", "creationTimestamp", "resourceVersion"]
                .iter()
                .for_each(|field| drop(metadata.remove(*field)));
            for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten()
            {
                entry["time"] = Value::Null;
            }
        }
        object
    };
    all.map(without_identity).collect()
}

fn deployment(name: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: \
         {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec: {{containers: [{{name: \
         c, image: 'i:1'}}]}}\n"
    )
}

fn documents(all: &[&str]) -> String {
    all.join("---\n")
}

#[test]
#[ignore = "needs kubectl"]
fn sources_and_streams() {
    let both = Both::start();
    let two = documents(&[&map("a"), &deployment("web")]);
    let made = both.agree(0, &[("a.yaml", &two)], &["-f", "a.yaml"]);
    assert_eq!(made.out, "configmap/a created\ndeployment.apps/web created\n");
    both.agree(0, &[("stdin", &map("b"))], &["-f", "-"]);
    let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}{"apiVersion":"v1","kind":"ConfigMap",
               "metadata":{"name":"d"}}"#;
    both.agree(0, &[("json.txt", json)], &["-f", "json.txt"]);
    both.agree(0, &[("x.json", &map("yaml-in-json"))], &["-f", "x.json"]);
    let mixed = format!("{}\n---\n{}", json.replace("\"c\"", "\"e\"").replace("\"d\"", "\"f\""), map("g"));
    both.agree(1, &[("mixed.yaml", &mixed)], &["-f", "mixed.yaml", "--dry-run=client"]);
    let folder = [
        ("d/2.yaml", map("d2")),
        ("d/1.yml", map("d1")),
        ("d/x.txt", map("x")),
        ("d/10.json", map("d10")),
        ("d/sub/1.yaml", map("d3")),
    ];
    let folder: Vec<(&str, &str)> = folder.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let flat = both.agree(0, &folder, &["-f", "d"]);
    assert_eq!(flat.out, "configmap/d1 created\nconfigmap/d10 created\nconfigmap/d2 created\n");
    both.agree(0, &folder, &["-f", "d", "-R", "--dry-run=client"]);
    both.agree(1, &folder, &["-f", "d,d", "-f", "d/sub", "-R"]);
    both.agree(0, &folder, &["-f", "d/[^2]*.y*", "--dry-run=client"]);
    both.agree(1, &folder, &["-f", "d/[", "-f", "d"]);
    both.agree(1, &folder, &["-f", "d/none*"]);
    both.agree(1, &[("fine.yaml", &map("never"))], &["-f", "fine.yaml", "-f", "nowhere.yaml"]);
    both.agree(1, &[("empty.yaml", "# nothing\n---\n\n---\nnull\n")], &["-f", "empty.yaml"]);
    both.agree(
        0,
        &[("comment.yaml", &format!("# why\n--- # this\n{}---\n", map("j")))],
        &["-f", "comment.yaml"],
    );
}

#[test]
#[ignore = "needs kubectl"]
fn good_and_bad_objects() {
    let both = Both::start();
    let broken = format!("{}---\na: [\n---\n{}", map("a"), map("never"));
    both.agree(
        1,
        &[("broken.yaml", &broken), ("after.yaml", &map("b"))],
        &["-f", "broken.yaml", "-f", "after.yaml"],
    );
    both.agree(1, &[("again.yaml", &documents(&[&map("a"), &map("c")]))], &["-f", "again.yaml"]);
    let negative = deployment("web").replace("spec:\n", "spec:\n  replicas: -1\n");
    both.agree(1, &[("web.yaml", &documents(&[&negative, &map("d")]))], &["-f", "web.yaml"]);
    let unknown = format!("{}colour: red\n", map("e"));
    for (code, flag) in
        [(1, "--validate"), (1, "--validate=true"), (0, "--validate=warn"), (0, "--validate=ignore")]
    {
        both.agree(code, &[("e.yaml", &unknown)], &["-f", "e.yaml", flag, "--dry-run=server"]);
    }
    let nameless = "apiVersion: v1\nmetadata: {name: a}\n";
    for flag in ["--validate=strict", "--validate=warn", "--validate=ignore"] {
        let name = format!("n{}", flag.len());
        both.agree(1, &[("n.yaml", &documents(&[nameless, &map(&name)]))], &["-f", "n.yaml", flag]);
        both.agree(1, &[("n.yaml", &documents(&["words\n", &map(&name)]))], &["-f", "n.yaml", flag]);
    }
    let foreign = "apiVersion: x/v1\nkind: Foo\nmetadata: {name: a}\n";
    both.agree(1, &[("f.yaml", &documents(&[foreign, &map("f")]))], &["-f", "f.yaml", "--validate=false"]);
    let typed = ["metadata: 5", "metadata: {name: 5}", "metadata: {name: a, labels: {a: 1}}"];
    for metadata in typed {
        let wrong = format!("apiVersion: v1\nkind: ConfigMap\n{metadata}\n");
        both.agree(1, &[("m.yaml", &documents(&[&wrong, &map("f")]))], &["-f", "m.yaml", "--validate=false"]);
    }
    both.agree(1, &[("none.yaml", "apiVersion: v1\nkind: ConfigMap\n")], &["-f", "none.yaml"]);
    let versioned = map("g").replace("name: g,", "name: g, resourceVersion: '5',");
    both.agree(0, &[("g.yaml", &versioned)], &["-f", "g.yaml"]);
    let numbers = format!(
        "{}spec: {{replicas: 3.0, selector: {{a: b}}, template: {{metadata: {{labels: {{a: b}}}}, spec: \
                  {{containers: [{{name: c, image: i, ports: [{{containerPort: 0x50}}]}}]}}}}}}\n",
        "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: rc}\n"
    );
    both.agree(0, &[("rc.yaml", &numbers)], &["-f", "rc.yaml"]);
}

#[test]
#[ignore = "needs kubectl"]
fn lists_kinds_and_namespaces() {
    let both = Both::start();
    let item = |name: &str| format!("- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}{}", item("a"), item("b"));
    // The sandbox has no OpenAPI v2, by which kubectl validates lists.
    both.agree(0, &[("l.yaml", &list)], &["-f", "l.yaml", "--validate=false"]);
    let typed =
        "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {metadata: {name: c}}\n- {metadata: {name: a}}\n";
    both.agree(1, &[("l.yaml", typed)], &["-f", "l.yaml", "--validate=false"]);
    both.agree(1, &[("l.yaml", "apiVersion: v1\nkind: List\nitems: []\n")], &["-f", "l.yaml"]);
    let strange = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\nitems:\n{}", item("d"));
    both.agree(0, &[("l.yaml", &strange)], &["-f", "l.yaml"]);
    let partly = format!("apiVersion: v1\nkind: List\nitems:\n- {{metadata: {{name: a}}}}\n{}", item("e"));
    both.agree(1, &[("l.yaml", &partly)], &["-f", "l.yaml", "--validate=false"]);
    both.agree(1, &[("l.yaml", &partly)], &["-f", "l.yaml"]);

    both.agree(0, &[("w.yaml", &documents(&[WIDGETS, WIDGET]))], &["-f", "w.yaml", "--validate=false"]);
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r, namespace: x}\nrules: []\n";
    let shop = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let inside = map("f").replace("name: f,", "name: f, namespace: shop,");
    both.agree(0, &[("n.yaml", &documents(&[shop, &inside, role]))], &["-f", "n.yaml"]);
    let other = documents(&[&inside.replace("name: f,", "name: g,"), &map("h")]);
    both.agree(0, &[("o.yaml", &other)], &["-f", "o.yaml", "-n", "shop"]);
    both.agree(1, &[("o.yaml", &documents(&[&inside, &map("i")]))], &["-f", "o.yaml", "-n", "default"]);
    both.agree(1, &[("o.yaml", &map("j"))], &["-f", "o.yaml", "-n", "nowhere"]);
}

#[test]
#[ignore = "needs kubectl"]
fn flags_and_output() {
    let both = Both::start();
    let two = documents(&[&map("a"), &map("b")]);
    let files: [(&str, &str); 1] = [("a.yaml", &two)];
    both.agree(0, &files, &["-f", "a.yaml", "-l", "app in (b,c)"]);
    both.agree(1, &files, &["-f", "a.yaml", "-l", "app=z"]);
    both.agree(1, &files, &["-f", "a.yaml", "-l", "app!=z"]);
    let rest = documents(&[&map("c"), &deployment("web")]);
    let files: [(&str, &str); 1] = [("c.yaml", &rest)];
    for output in [&[][..], &["-o", "name"], &["-o", "json"]] {
        for trial in ["--dry-run=client", "--dry-run"] {
            both.agree_but_for_errors(0, &files, &[&["-f", "c.yaml", trial], output].concat());
        }
    }
    for output in [&[][..], &["-o", "name"]] {
        both.agree(0, &files, &[&["-f", "c.yaml", "--dry-run=server"], output].concat());
    }
    let (ours, theirs) = both.run(&files, &["-f", "c.yaml", "--dry-run=client", "-o", "yaml"]);
    assert_eq!((read(&ours.out), ours.code), (read(&theirs.out), theirs.code), "{ours:?} {theirs:?}");
    let kept = documents(&[
        &map("d"),
        &map("e").replace(
            "name: e,",
            "name: e, annotations: {kubectl.kubernetes.io/last-applied-configuration: x},",
        ),
    ]);
    both.agree(
        0,
        &[("d.yaml", &format!("{kept}data: {{x: 'a<b>&c', z: ä}}\n"))],
        &["-f", "d.yaml", "--save-config"],
    );
    both.agree(
        0,
        &[("e.yaml", &kept.replace("name: e,", "name: e2,").replace("name: d,", "name: d2,"))],
        &["-f", "e.yaml"],
    );
    both.agree(0, &[("f.yaml", &map("f"))], &["-f", "f.yaml", "--field-manager", "me", "-o", "name"]);
    let generated = map("g").replace("name: g,", "generateName: g-,");
    let made = both.agree(0, &[("g.yaml", &generated)], &["-f", "g.yaml", "-o", "name"]);
    assert!(made.out.starts_with("configmap/g-") && made.out.len() > "configmap/g-\n".len(), "{made:?}");
}

impl Both {
    /// As [`Both::agree`], where stderr may have notes.
    #[track_caller]
    fn agree_but_for_errors(&self, code: i32, files: &[(&str, &str)], args: &[&str]) {
        let (ours, theirs) = self.run(files, args);
        assert_eq!((&ours.out, ours.code), (&theirs.out, theirs.code), "{args:?}: {ours:?} {theirs:?}");
        assert_eq!((ours.code, objects(&self.ours)), (Some(code), objects(&self.theirs)), "{args:?}");
    }
}

/// The documents of a YAML text.
fn read(text: &str) -> Vec<Value> {
    windlass_testkit::manifests::objects(text)
}

#[test]
#[ignore = "needs kubectl"]
fn yaml_is_read_as_kubectl_reads_it() {
    let both = Both::start();
    let data = |data: &str| format!("{}data:{data}", map("a"));
    for (text, warning) in [
        (data(" {x: a, x: b}\n"), "data: the key \"x\" occurs twice"),
        (data(" {x: yes}\n"), "data.x: yes without quotes is the boolean true"),
        (data(" {y: a}\n"), "data: y without quotes is the boolean true"),
        (data(" {1.10: a}\n"), "data: a key without quotes is read as the number 1.1"),
        (data(" {x: a, <<: {x: b}}\n"), "data: << replaces the key \"x\""),
        (format!("{}...\n{}", map("a"), map("b")), "the document ends before line 5"),
        (data("\n  text: 'first\n  second'\n  more: {\n\ta: 1}\n"), ""),
        (data("\n  x: |\n    without a line break"), ""),
        (data(" {a: 0x1F, b: 017, c: 1_0, d: 1e3}\n"), ""),
    ] {
        let args = ["-f", "a.yaml", "--dry-run=client", "--validate=false", "-o", "json"];
        let (ours, theirs) = both.run(&[("a.yaml", &text)], &args);
        assert_eq!((&ours.out, ours.code), (&theirs.out, Some(0)), "{text}: {ours:?} {theirs:?}");
        assert_eq!(ours.err.is_empty(), warning.is_empty(), "{text}: {ours:?}");
        assert!(ours.err.contains(warning), "{warning}: {ours:?}");
    }
}

#[test]
#[ignore = "needs kubectl"]
fn the_differences_on_purpose() {
    let both = Both::start();
    let with = |data: &str| format!("{}data: {data}\n", map("a"));
    let run = |ours, theirs, part: &str, text: &str| {
        both.differ(
            ours,
            theirs,
            part,
            &[("a.yaml", text)],
            &["-f", "a.yaml", "--dry-run=client", "--validate=false"],
        );
    };
    run(1, 0, "data.x: the tag !y is not supported", &with("{x: !y a}"));
    let bomb = format!(
        "{}data:\n  a: &a {}\n  b: {{{}}}\n",
        map("a"),
        "x".repeat(100_000),
        (0..40).map(|key| format!("k{key}: *a")).collect::<Vec<_>>().join(", ")
    );
    run(1, 0, "larger than 3 MiB", &bomb);
    run(1, 0, "items is missing", "apiVersion: v1\nkind: List\n");
    let inner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let nested = json!({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": [inner]}]});
    run(0, 1, "", &nested.to_string());
    std::fs::create_dir(both.folder.path().join("empty")).unwrap();
    both.differ(
        1,
        0,
        ".json, .yaml, .yml",
        &[("a.yaml", &map("a"))],
        &["-f", "a.yaml", "-f", "empty", "--dry-run=client"],
    );
    for args in [&["-f", ""][..], &[], &["-f", "a.yaml", "word"], &["-f", "a.yaml", "--validate=x"]] {
        both.differ(2, 1, "", &[], args);
    }
}
