//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};

/// The names of kernel parameters (`SysctlContainSlashFmt` upstream).
const SYSCTL: &str = "must have at most 253 characters and match regex \
    ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// That of a pod.
pub(super) fn of_pod(spec: &Value, path: &str, errors: &mut Errors) {
    let (context, path) = (&spec["securityContext"], format!("{path}.securityContext"));
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context[field], &format!("{path}.{field}"), errors);
    }
    for (path, group) in elements(context, "supplementalGroups", &path) {
        id(group, &path, errors);
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&format!("{path}.shareProcessNamespace"), true, why);
    }
    sysctls(spec, &path, errors);
    let policy = format!("{path}.fsGroupChangePolicy");
    errors.one_of(&policy, &context["fsGroupChangePolicy"], &["Always", "OnRootMismatch"]);
    profiles(context, &path, errors);
    let policy = format!("{path}.supplementalGroupsPolicy");
    errors.one_of(&policy, &context["supplementalGroupsPolicy"], &["Merge", "Strict"]);
    let policy = format!("{path}.seLinuxChangePolicy");
    errors.one_of(&policy, &context["seLinuxChangePolicy"], &["MountOption", "Recursive"]);
}

/// A pod with host processes of Windows is on the network of its node.
pub(super) fn host_processes(spec: &Value, path: &str, errors: &mut Errors) {
    let asks = |object: &Value| object["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let lists = ["containers", "initContainers"];
    let mut containers = lists.into_iter().flat_map(|list| elements(spec, list, path));
    if (asks(spec) || containers.any(|(_, container)| asks(container))) && spec["hostNetwork"] != true {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&format!("{path}.hostNetwork"), false, why);
    }
}

/// A pod with users of its own has no namespace of its node.
pub(super) fn host_users(spec: &Value, path: &str, errors: &mut Errors) {
    if spec["hostUsers"] != false {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec[field] == true {
            errors.forbidden(&format!("{path}.{shown}"), "when `hostUsers` is false");
        }
    }
}

/// On the network of its node the ports of a pod are the node's. A template may leave host ports open; they are filled in
/// when its pods are made.
pub(super) fn host_ports(spec: &Value, path: &str, errors: &mut Errors) {
    if spec["hostNetwork"] != true {
        return;
    }
    let is_template = path != "spec";
    for (path, container) in elements(spec, "containers", path) {
        for (path, port) in elements(container, "ports", &path) {
            let (host, number) = (port["hostPort"].as_i64().unwrap_or(0), port["containerPort"].as_i64());
            let is_open = is_template && host == 0;
            if !is_open && Some(host) != number {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&format!("{path}.hostPort"), host, why);
            }
        }
    }
}

pub(super) fn of_container(container: &Value, path: &str, spec: &Value, errors: &mut Errors) {
    let (context, path) = (&container["securityContext"], format!("{path}.securityContext"));
    for field in ["runAsUser", "runAsGroup"] {
        id(&context[field], &format!("{path}.{field}"), errors);
    }
    let proc_mount = format!("{path}.procMount");
    errors.one_of(&proc_mount, &context["procMount"], &["Default", "Unmasked"]);
    if context["procMount"] == "Unmasked" && spec["hostUsers"] != false {
        errors.invalid(&proc_mount, "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    profile(context, "seccompProfile", &path, errors);
    if context["allowPrivilegeEscalation"] == false {
        let added = context["capabilities"]["add"].as_array();
        let system = added.into_iter().flatten().filter(|name| *name == "CAP_SYS_ADMIN");
        let privileged = std::iter::once("`privileged` to true").filter(|_| context["privileged"] == true);
        for what in privileged.chain(system.map(|_| "`capabilities.Add` CAP_SYS_ADMIN")) {
            let why = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            errors.invalid_shown(&path, &shown_context(context), &why);
        }
    }
    profile(context, "appArmorProfile", &path, errors);
}

/// The Go type of a security context in JSON.
fn shown_context(context: &Value) -> String {
    let structs = |field: &str, fields: &[(&str, &str)], absent: &str| match &context[field] {
        Value::Null => "null".to_owned(),
        set => {
            let shown = fields.iter().map(|(name, shown)| match &set[*name] {
                Value::Null => format!("{shown:?}:{absent}"),
                value => format!("{shown:?}:{value}"),
            });
            format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
        }
    };
    let profile = [("type", "Type"), ("localhostProfile", "LocalhostProfile")];
    let linux = [("user", "User"), ("role", "Role"), ("type", "Type"), ("level", "Level")];
    let windows = [
        ("gmsaCredentialSpecName", "GMSACredentialSpecName"),
        ("gmsaCredentialSpec", "GMSACredentialSpec"),
        ("runAsUserName", "RunAsUserName"),
        ("hostProcess", "HostProcess"),
    ];
    let plain = |field: &str| context[field].to_string();
    let fields = [
        ("Capabilities", structs("capabilities", &[("add", "Add"), ("drop", "Drop")], "null")),
        ("Privileged", plain("privileged")),
        ("SELinuxOptions", structs("seLinuxOptions", &linux, "\"\"")),
        ("WindowsOptions", structs("windowsOptions", &windows, "null")),
        ("RunAsUser", plain("runAsUser")),
        ("RunAsGroup", plain("runAsGroup")),
        ("RunAsNonRoot", plain("runAsNonRoot")),
        ("ReadOnlyRootFilesystem", plain("readOnlyRootFilesystem")),
        ("AllowPrivilegeEscalation", plain("allowPrivilegeEscalation")),
        ("ProcMount", plain("procMount")),
        ("SeccompProfile", structs("seccompProfile", &profile, "null")),
        ("AppArmorProfile", structs("appArmorProfile", &profile, "null")),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn id(value: &Value, field: &str, errors: &mut Errors) {
    if let Some(id) = value.as_i64().filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.invalid(field, id, "must be between 0 and 2147483647, inclusive");
    }
}

fn sysctls(spec: &Value, path: &str, errors: &mut Errors) {
    let context = &spec["securityContext"];
    let mut seen = BTreeSet::new();
    for (path, sysctl) in elements(context, "sysctls", path) {
        let (name, field) = (text(sysctl, "name"), format!("{path}.name"));
        if name.is_empty() {
            errors.required(&field, "");
        } else if name.len() > 253 || !name.split(['.', '/']).all(is_part_of_a_sysctl) {
            errors.invalid(&field, name, SYSCTL);
        } else if !seen.insert(name) {
            errors.duplicate(&field, name);
        }
        let of_network = name.replace('/', ".").starts_with("net.");
        if of_network && spec["hostNetwork"] == true {
            errors.invalid(&field, name, "may not be specified when 'hostNetwork' is true");
        }
    }
}

fn is_part_of_a_sysctl(part: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let is_outer = |byte: Option<&u8>| byte.is_some_and(|byte| is_inner(*byte) && !b"-_".contains(byte));
    let bytes = part.as_bytes();
    bytes.iter().all(|byte| is_inner(*byte)) && is_outer(bytes.first()) && is_outer(bytes.last())
}

/// Those of seccomp and of AppArmor.
fn profiles(context: &Value, path: &str, errors: &mut Errors) {
    for field in ["seccompProfile", "appArmorProfile"] {
        profile(context, field, path, errors);
    }
}

fn profile(context: &Value, field: &str, path: &str, errors: &mut Errors) {
    let name = if field == "seccompProfile" { "seccomp" } else { "AppArmor" };
    let (profile, path) = (&context[field], format!("{path}.{field}"));
    let Some(set) = profile.as_object() else { return };
    let local = text(profile, "localhostProfile");
    let field_of_local = format!("{path}.localhostProfile");
    match text(profile, "type") {
        "Localhost" if local.is_empty() => {
            errors.required(&field_of_local, &format!("must be set when {name} type is Localhost"));
        }
        "Localhost" => {}
        known @ ("RuntimeDefault" | "Unconfined") if set.contains_key("localhostProfile") => {
            // Upstream shows the whole profile of seccomp, and of AppArmor the name of the file.
            let shown = match name {
                "seccomp" => {
                    format!("{{\"Type\":{known:?},\"LocalhostProfile\":{}}}", profile["localhostProfile"])
                }
                _ => profile["localhostProfile"].to_string(),
            };
            let why = format!("can only be set when {name} type is Localhost");
            errors.invalid_shown(&field_of_local, &shown, &why);
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(&format!("{path}.type"), &format!("type is required when {field} is set")),
        other => {
            let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.not_supported(&format!("{path}.type"), other, &supported);
        }
    }
}
