//! How the containers of a pod resolve names (upstream: `validatePodDNSConfig`).

use std::net::IpAddr;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;

const NAMESERVERS: usize = 3;
const SEARCHES: usize = 32;
/// Of all searches together, with a space between two.
const LENGTH_OF_SEARCHES: usize = 2048;

pub(super) fn validate(spec: &Value, path: &str, errors: &mut Errors) {
    let (config, path) = (&spec["dnsConfig"], format!("{path}.dnsConfig"));
    let strings = |field: &str| -> Vec<&str> {
        config[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let (servers, searches) = (strings("nameservers"), strings("searches"));
    if spec["dnsPolicy"] == "None" {
        let policy = "when `dnsPolicy` is None";
        if config.is_null() {
            return errors.required(&path, &format!("must provide `dnsConfig` {policy}"));
        }
        if servers.is_empty() {
            let why = format!("must provide at least one DNS nameserver {policy}");
            return errors.required(&format!("{path}.nameservers"), &why);
        }
    }
    let field = format!("{path}.nameservers");
    if servers.len() > NAMESERVERS {
        let why = format!("must not have more than {NAMESERVERS} nameservers");
        errors.invalid(&field, config["nameservers"].clone(), why);
    }
    for (index, server) in servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.invalid(&format!("{field}[{index}]"), *server, why);
        }
    }
    let field = format!("{path}.searches");
    if searches.len() > SEARCHES {
        let why = format!("must not have more than {SEARCHES} search paths");
        errors.invalid(&field, config["searches"].clone(), why);
    }
    if searches.join(" ").len() > LENGTH_OF_SEARCHES {
        let why = format!(
            "must not have more than {LENGTH_OF_SEARCHES} characters (including spaces) in the search list"
        );
        errors.invalid(&field, config["searches"].clone(), why);
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.each_invalid(&format!("{field}[{index}]"), search, names::search_domain(search));
    }
    for (path, option) in elements(config, "options", &path) {
        if text(option, "name").is_empty() {
            errors.required(&path, "must not be empty");
        }
    }
}
