//! Probes and hooks of containers (upstream: `validateProbe`, `validateLifecycle`, `validateHandler`).

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;

/// The handlers, in the order in which they are judged; of probes and hooks each has one more of its own.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// A readiness probe may ask for several successes; the others must be content with one. `grace` is the time that the
/// pod has to end, in seconds.
pub(super) fn probe(probe: &Value, path: &str, repeats: bool, grace: Option<i64>, errors: &mut Errors) {
    handler(probe, path, grace, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        errors.non_negative(&format!("{path}.{field}"), &probe[field]);
    }
    if let Some(grace) = probe["terminationGracePeriodSeconds"].as_i64() {
        let field = format!("{path}.terminationGracePeriodSeconds");
        if grace < 1 {
            errors.invalid(&field, grace, "must be greater than 0");
        }
        if repeats {
            errors.invalid(&field, grace, "must not be set for readinessProbes");
        }
    }
    let threshold = probe["successThreshold"].as_i64().unwrap_or(1);
    if !repeats && threshold != 1 {
        errors.invalid(&format!("{path}.successThreshold"), threshold, "must be 1");
    }
}

/// A hook may sleep for as long as the pod has to end.
pub(super) fn lifecycle(container: &Value, path: &str, spec: &Value, errors: &mut Errors) {
    let grace = spec["terminationGracePeriodSeconds"].as_i64();
    for hook in ["postStart", "preStop"] {
        let hooked = &container["lifecycle"][hook];
        if !hooked.is_null() {
            handler(hooked, &format!("{path}.lifecycle.{hook}"), grace, errors);
        }
    }
}

fn handler(handler: &Value, path: &str, grace: Option<i64>, errors: &mut Errors) {
    let mut given = HANDLERS.iter().filter(|kind| !handler[**kind].is_null());
    let Some(kind) = given.next() else {
        return errors.required(path, "must specify a handler type");
    };
    action(kind, &handler[*kind], &format!("{path}.{kind}"), grace, errors);
    for kind in given {
        errors.forbidden(&format!("{path}.{kind}"), "may not specify more than 1 handler type");
    }
}

fn action(kind: &str, action: &Value, path: &str, grace: Option<i64>, errors: &mut Errors) {
    match kind {
        "exec" if action["command"].as_array().is_none_or(Vec::is_empty) => {
            errors.required(&format!("{path}.command"), "");
        }
        "httpGet" => {
            if text(action, "path").is_empty() {
                errors.required(&format!("{path}.path"), "");
            }
            port_reference(&action["port"], &format!("{path}.port"), errors);
            errors.one_of(&format!("{path}.scheme"), &action["scheme"], &["HTTP", "HTTPS"]);
            for (_, header) in elements(action, "httpHeaders", path) {
                let name = text(header, "name");
                errors.each_invalid(&format!("{path}.httpHeaders"), name, names::http_header(name));
            }
        }
        "tcpSocket" | "grpc" => port_reference(&action["port"], &format!("{path}.port"), errors),
        "sleep" => {
            let seconds = action["seconds"].as_i64().unwrap_or(0);
            if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                let why =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.invalid(path, seconds, why);
            }
        }
        _ => {}
    }
}

fn port_reference(port: &Value, field: &str, errors: &mut Errors) {
    match port {
        Value::String(name) => errors.each_invalid(field, name, names::port_name(name)),
        _ => {
            let number = port.as_i64().unwrap_or(0);
            for why in names::port_number(number) {
                errors.invalid(field, number, why);
            }
        }
    }
}
