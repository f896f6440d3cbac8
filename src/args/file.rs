//! The file of `--config`: YAML whose keys are the names of the flags, without the dashes.
//!
//! ```yaml
//! kube-api-qps: 50
//! controllers: ["*", "-replicationcontroller"]
//! leader-elect-resource-name: windlass-shop
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_path_to_error::Track;
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{Options, UserMessageFormatter};

use crate::controllers::registry::CONTROLLERS;

/// The largest file that is read, in bytes.
pub const LARGEST: u64 = 1 << 20;

/// How deep lists may be nested: a flag's value is a list at most.
const DEEPEST: usize = 8;

/// The settings of a file; what is `None` is not in it. A key that is not here is refused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Each is the flag of its name.
pub struct File {
    pub controllers: Option<List>,
    pub controller_start_interval: Option<String>,
    pub controller_shutdown_timeout: Option<String>,
    pub min_resync_period: Option<String>,
    pub kube_api_qps: Option<f64>,
    pub kube_api_burst: Option<i32>,

    pub leader_elect: Option<bool>,
    pub leader_elect_lease_duration: Option<String>,
    pub leader_elect_renew_deadline: Option<String>,
    pub leader_elect_retry_period: Option<String>,
    pub leader_elect_resource_lock: Option<String>,
    pub leader_elect_resource_name: Option<String>,
    pub leader_elect_resource_namespace: Option<String>,

    /// The keys of the controllers. It takes every key that is not a field of this struct, and refuses unknown keys.
    #[serde(flatten)]
    pub concurrency: Concurrency,

    pub namespace: Option<String>,
    pub selector: Option<String>,
    pub on_conflict: Option<String>,
    pub test_bed: Option<bool>,
    pub failed_pod_backoff: Option<bool>,
    pub rollout_policy: Option<bool>,
    pub namespace_deletion_delay: Option<String>,
    pub terminated_pod_gc_threshold: Option<i32>,
    pub max_endpoints_per_slice: Option<i32>,
    pub endpointslice_updates_batch_period: Option<String>,
    pub resource_quota_sync_period: Option<String>,
    pub endpoint_updates_batch_period: Option<String>,
    pub mirroring_max_endpoints_per_subset: Option<i32>,
    pub mirroring_endpointslice_updates_batch_period: Option<String>,
    pub delete_leftover_endpoint_slices: Option<bool>,
    pub gc_resources: Option<List>,
    pub gc_ignored_resources: Option<List>,
    pub field_manager: Option<String>,

    pub root_ca_file: Option<String>,

    pub node_monitor_period: Option<String>,
    pub node_monitor_grace_period: Option<String>,
    pub node_startup_grace_period: Option<String>,
    pub node_eviction_rate: Option<f64>,
    pub secondary_node_eviction_rate: Option<f64>,
    pub large_cluster_size_threshold: Option<i32>,
    pub unhealthy_zone_threshold: Option<f64>,

    pub profiling: Option<bool>,
    pub bind_address: Option<String>,
    pub secure_port: Option<u16>,
    pub cert_dir: Option<String>,
    pub tls_cert_file: Option<String>,
    pub tls_private_key_file: Option<String>,
    pub tls_cipher_suites: Option<List>,
    pub tls_min_version: Option<String>,
    pub disable_http2_serving: Option<bool>,
    pub http2_max_streams_per_connection: Option<u32>,

    pub insecure_port: Option<u16>,
    pub insecure_bind_address: Option<String>,

    pub authentication_kubeconfig: Option<String>,
    pub authentication_skip_lookup: Option<bool>,
    pub authentication_tolerate_lookup_failure: Option<bool>,
    pub authentication_token_webhook_cache_ttl: Option<String>,
    pub client_ca_file: Option<String>,
    pub requestheader_client_ca_file: Option<String>,
    pub requestheader_allowed_names: Option<List>,
    pub requestheader_username_headers: Option<List>,
    pub requestheader_uid_headers: Option<List>,
    pub requestheader_group_headers: Option<List>,
    pub requestheader_extra_headers_prefix: Option<List>,

    pub authorization_kubeconfig: Option<String>,
    pub authorization_always_allow_paths: Option<List>,
    pub authorization_webhook_cache_authorized_ttl: Option<String>,
    pub authorization_webhook_cache_unauthorized_ttl: Option<String>,

    pub v: Option<u8>,
    pub logging_format: Option<String>,

    pub kubeconfig: Option<String>,
    pub master: Option<String>,
}

/// The flags that the registry of controllers brings, as far as they are set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Concurrency(BTreeMap<&'static str, usize>);

impl Serialize for Concurrency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(CONTROLLERS.iter().map(|entry| (entry.flag, self.0.get(entry.flag))))
    }
}

impl<'de> Deserialize<'de> for Concurrency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Flags;

        impl<'de> Visitor<'de> for Flags {
            type Value = Concurrency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the names of flags")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Concurrency, A::Error> {
                let mut set = BTreeMap::new();
                while let Some(name) = items.next_key::<String>()? {
                    let Some(entry) = CONTROLLERS.iter().find(|entry| entry.flag == name) else {
                        return Err(serde::de::Error::custom(format!(
                            "unknown field `{name}`: no flag has this name"
                        )));
                    };
                    let value = items
                        .next_value::<Option<usize>>()
                        .map_err(|error| serde::de::Error::custom(format!("{name}: {error}")))?;
                    set.extend(value.map(|value| (entry.flag, value)));
                }
                Ok(Concurrency(set))
            }
        }
        deserializer.deserialize_map(Flags)
    }
}

/// A list, which may also be written as on the command line: `a,b`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct List(pub Vec<String>);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = List;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list, or a string with commas")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<List, E> {
                Ok(List(text.split(',').map(str::to_owned).collect()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element::<String>()? {
                    list.push(item);
                }
                Ok(List(list))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads a file.
///
/// # Errors
/// When it cannot be read, is larger than [`LARGEST`], or is not what it should be; in words for a user.
pub fn read(path: &Path) -> Result<File, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    parse(&text)
}

/// Reads the text of a file.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str) -> Result<File, String> {
    if text.len() as u64 > LARGEST {
        return Err(format!("is larger than {LARGEST} bytes"));
    }
    if let Some(line) = anchor(text) {
        return Err(format!(
            "line {line} has an anchor or alias, which are refused; put a value with & or * in quotes"
        ));
    }
    // An empty file is a file without settings.
    let mut track = Track::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |yaml| {
        Option::<File>::deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track))
    });
    read.map(Option::unwrap_or_default).map_err(|error| {
        let (key, what) = (track.path(), error.render_with_formatter(&UserMessageFormatter));
        if key.iter().next().is_none() { what } else { format!("{key}: {what}") }
    })
}

/// YAML 1.2, where `yes` is a string and a string that looks like a number is in quotes.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEEPEST, flow_nesting_limit: DEEPEST },
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        no_schema: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

impl File {
    /// The settings that are there, by the flag's name and as its value is typed.
    ///
    /// # Errors
    /// When a number has no form as a flag.
    pub fn settings(&self) -> Result<Vec<(String, String)>, String> {
        use serde_json::Value;
        // JSON would make nothing of it.
        if let Some(qps) = self.kube_api_qps.filter(|qps| !qps.is_finite()) {
            return Err(format!("kube-api-qps: {qps} is not a number"));
        }
        let Value::Object(all) = serde_json::to_value(self).map_err(|error| error.to_string())? else {
            return Ok(Vec::new());
        };
        let typed = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            Value::Array(items) => Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")),
            other => Some(other.to_string()),
        };
        Ok(all.iter().filter_map(|(name, value)| Some((name.clone(), typed(value)?))).collect())
    }
}

/// The line of the first anchor or alias: `&` or `*` where a value may begin, outside of quotes and
/// comments. They would let a small file say a lot, and no file of flags needs them.
///
/// It errs on the strict side: `a, *b` without quotes is one string to YAML, and is refused here.
fn anchor(text: &str) -> Option<usize> {
    let (mut line, mut may_begin, mut before, mut quote) = (1, true, '\n', None);
    for c in text.chars() {
        match (quote, c) {
            // A doubled quote ends the string and begins another, which comes to the same.
            (Some(open), _) if c == open && !(open == '"' && before == '\\') => quote = None,
            (Some('#'), '\n') => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if may_begin || before == c => quote = Some(c),
            (None, '#') if before.is_whitespace() => quote = Some('#'),
            (None, '&' | '*') if may_begin => return Some(line),
            (None, _) => {}
        }
        if c == '\n' {
            line += 1;
        }
        may_begin = match c {
            '\n' | '[' | '{' | ',' => true,
            ' ' | '\t' => may_begin || matches!(before, ':' | '-' | '?'),
            _ => false,
        };
        // An escaped backslash escapes nothing.
        before = if c == '\\' && before == '\\' { ' ' } else { c };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_be_written_in_both_ways() {
        for yaml in ["controllers: ['*', -x]", "controllers: '*,-x'", "controllers:\n- '*'\n- -x\n"] {
            assert_eq!(parse(yaml).unwrap().controllers.unwrap().0, ["*", "-x"], "{yaml}");
        }
    }

    #[test]
    fn only_what_is_set_becomes_a_flag() {
        let file = parse("kube-api-qps: 50\nleader-elect: false\ntls-cipher-suites: [A, B]\n").unwrap();
        let settings = file.settings().unwrap();
        let as_typed: Vec<_> = settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        assert_eq!(as_typed, ["--kube-api-qps=50.0", "--leader-elect=false", "--tls-cipher-suites=A,B"]);
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        for yaml in ["", "\n", "# nothing\n", "---\n", "null"] {
            assert_eq!(parse(yaml), Ok(File::default()), "{yaml:?}");
        }
    }

    #[test]
    fn anchors_and_aliases_are_refused_and_their_characters_in_quotes_are_not() {
        for yaml in [
            "namespace: &a shop\nselector: *a\n",
            "controllers: [&a x]",
            "controllers:\n- &a x\n",
            "&a namespace: shop",
            "x: 'it''s' # quoted\nnamespace: *a",
            "x: \"a \\\\\"\nnamespace: &a b",
        ] {
            assert!(parse(yaml).unwrap_err().contains("anchor"), "{yaml}");
        }
        for yaml in [
            "selector: 'a=*b'",
            "selector: \"*\\\"&a\"",
            "controllers: ['*', \"&\"]",
            "# &a *b\nnamespace: a&b*c\n",
            "namespace: don't # *a\n",
        ] {
            assert!(parse(yaml).is_ok(), "{yaml}: {:?}", parse(yaml));
        }
    }

    #[test]
    fn errors_name_the_key_and_the_line() {
        for (yaml, words) in [
            ("v: 1\nnamespace: 5\n", "namespace: "),
            ("v: 1\nleader-elect: yes\n", "leader-elect: "),
            ("v: 1\nv: 2\n", "duplicate"),
            ("v: 1\nnamespace: !x y\n", "tag"),
            ("v: 1\n<<: {v: 2}\n", "merge key"),
            ("v: 1\n- x\n", ""),
            ("v: 1\ncontrollers: [{a: b}]\n", "controllers[0]: "),
        ] {
            let error = parse(yaml).unwrap_err();
            assert!(error.contains(words) && error.contains("line 2"), "{yaml}: {error}");
        }
        assert!(parse("v: 1\n---\nv: 2\n").is_err());
        assert!(parse(&format!("controllers: {}", "[".repeat(100_000))).is_err());
    }

    #[test]
    fn a_huge_file_is_refused_before_it_is_read_as_yaml() {
        let yaml = format!("namespace: {}", "a".repeat(LARGEST as usize));
        assert_eq!(parse(&yaml), Err("is larger than 1048576 bytes".into()));
    }
}
