//! The addresses and node ports of Services (upstream `pkg/registry/core/service/storage/alloc.go`): given on creation and on
//! a change of type, checked if the client chose them, and free again with the Service. The cluster has one family, IPv4.
//!
//! Nothing is remembered here: what is held follows from the stored Services ([`Held`]), and a dry run takes nothing.

mod kept;

use std::net::Ipv4Addr;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};

use self::kept::{is_empty, node_ports, number_in};
use crate::kinds::Kind;
use crate::names::Names;
use crate::object::{as_map, map_mut, meta, text};
use crate::status::Failure;
use crate::store::{Held, Store};
use crate::validate::service::{addresses, family, is_headless, needs_health_check};
use crate::validate::{Errors, FieldError};

/// The range of the addresses, 10.96.0.0/12: its first address, and how many there are.
const NETWORK: u32 = 0x0a60_0000;
const SIZE: u32 = 1 << 20;
/// The first address is the API server's own, as in a cluster, where the Service `kubernetes` has it.
const API_SERVER: u32 = 1;
/// The server chooses from above this number first, so that clients can choose from below it without a collision
/// (KEP-3070). Of the numbers below it chooses only when all others are held.
const STATIC_ADDRESSES: u32 = 256;

const FIRST_PORT: i64 = 30_000;
const LAST_PORT: i64 = 32_767;
/// The same for node ports (KEP-3682).
const STATIC_PORTS: i64 = 86;

/// Only one Service at a time is given something; `None` for other kinds. Held until it is stored.
pub(crate) fn alone<'a>(services: &'a Mutex<()>, kind: &Kind) -> Option<MutexGuard<'a, ()>> {
    (kind.storage() == "Service").then(|| services.lock())
}

/// Gives a Service what it lacks.
pub(crate) struct Allocator<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) store: &'a Store,
    pub(crate) names: &'a Names,
}

impl Allocator<'_> {
    /// For a new Service with defaults.
    pub(crate) fn create(&self, service: &mut Value) -> Result<(), Failure> {
        let spec = map_mut(service, "spec");
        if let Some(address) = spec.get("clusterIP").filter(|address| *address != "").cloned()
            && is_empty(spec.get("clusterIPs"))
        {
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
        self.families(service, &Value::Null)?;
        self.address(service)?;
        let (kind, mut ports) = (text(service, "/spec/type").to_owned(), Ports::of(self));
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            self.new_ports(service, &mut ports)?;
        }
        self.health_check(service, &Value::Null, &mut ports)
    }

    /// For a Service with defaults that replaces another one.
    pub(crate) fn update(&self, new: &mut Value, old: &Value) -> Result<(), Failure> {
        kept::keep_allocated(new, old);
        self.families(new, old)?;
        if text(old, "/spec/type") == "ExternalName" {
            self.address(new)?;
        }
        let mut ports = Ports::of(self);
        if matches!(text(new, "/spec/type"), "NodePort" | "LoadBalancer") {
            self.changed_ports(new, old, &mut ports)?;
        }
        self.health_check(new, old, &mut ports)?;
        kept::drop_by_type(new, old);
        Ok(())
    }

    fn invalid(&self, service: &Value, errors: Errors) -> Failure {
        Failure::invalid(self.kind, meta(service, "name"), &errors.into_vec())
    }

    /// Fills in `ipFamilyPolicy` and `ipFamilies` (`initIPFamilyFields`).
    fn families(&self, service: &mut Value, old: &Value) -> Result<(), Failure> {
        if text(service, "/spec/type") == "ExternalName" {
            return Ok(());
        }
        let no_selector = service["spec"]["selector"].as_object().is_none_or(Map::is_empty);
        let is_open = text(service, "/spec/clusterIP") == "None" && no_selector;
        let spec = map_mut(service, "spec");
        if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
            let before = &old["spec"]["ipFamilyPolicy"];
            let policy = match before.as_str() {
                Some(before) => before,
                None if is_open => "RequireDualStack",
                None => "SingleStack",
            };
            spec.insert("ipFamilyPolicy".to_owned(), json!(policy));
        }
        let mut errors = Errors::default();
        addresses(&service["spec"], &mut errors);
        if errors.len() > 0 {
            return Err(self.invalid(service, errors));
        }
        self.agree(service, old, &mut errors);
        if errors.len() > 0 {
            return Err(self.invalid(service, errors));
        }
        let is_single = service["spec"]["ipFamilyPolicy"] == "SingleStack";
        let families = map_mut(service, "spec").entry("ipFamilies").or_insert(Value::Null);
        let mut all = families.as_array().cloned().unwrap_or_default();
        if is_open {
            // The author of the endpoints decides: the Service can have both.
            if all.is_empty() {
                all.push(json!("IPv4"));
            }
            if all.len() == 1 && !is_single {
                all.push(json!(if all[0] == "IPv4" { "IPv6" } else { "IPv4" }));
            }
            *families = Value::Array(all);
            return Ok(());
        }
        if service["spec"]["ipFamilyPolicy"] == "RequireDualStack" {
            let why = "this cluster is not configured for dual-stack services";
            errors.invalid("spec.ipFamilyPolicy", "RequireDualStack", why);
        }
        for (index, family) in all.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
            let path = format!("spec.ipFamilies[{index}]");
            errors.invalid(&path, family.clone(), "not configured on this cluster");
        }
        if errors.len() > 0 {
            return Err(self.invalid(service, errors));
        }
        if all.is_empty() {
            all.push(json!("IPv4"));
        }
        map_mut(service, "spec").insert("ipFamilies".to_owned(), Value::Array(all));
        Ok(())
    }

    /// Judges policy, families and addresses together, and cuts to one what became single.
    fn agree(&self, service: &mut Value, old: &Value, errors: &mut Errors) {
        let policy = text(service, "/spec/ipFamilyPolicy").to_owned();
        let spec = map_mut(service, "spec");
        let length = |list: &Value| list.as_array().map_or(0, Vec::len);
        let field = "spec.ipFamilyPolicy";
        for (list, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let before = &old["spec"][list];
            let now = spec.entry(list).or_insert(Value::Null);
            if policy != "SingleStack" {
                if (1..length(before)).contains(&length(now)) {
                    let why = format!("must be 'SingleStack' to release the secondary {what}");
                    errors.invalid(field, policy.clone(), why);
                }
            } else if now == before
                && let Value::Array(all) = now
            {
                all.truncate(1);
            }
        }
        if policy == "SingleStack" {
            for (list, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
                if spec.get(list).is_some_and(|all| length(all) == 2) {
                    let why = format!(
                        "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                    );
                    errors.invalid(field, policy.clone(), why);
                }
            }
        }
        let all = spec.get("clusterIPs").cloned().unwrap_or_default();
        let known = spec.get("ipFamilies").map_or(0, length);
        for (index, address) in all.as_array().into_iter().flatten().enumerate().skip(known) {
            match family(address.as_str().unwrap_or_default()) {
                _ if address == "None" => break,
                "IPv6" => {
                    let path = format!("spec.clusterIPs[{index}]");
                    errors.invalid(&path, all.clone(), "IPv6 is not configured on this cluster");
                }
                _ => {}
            }
        }
        spec.retain(|_, value| !value.is_null());
    }

    /// Takes the address that the client chose, or a free one.
    fn address(&self, service: &mut Value) -> Result<(), Failure> {
        if text(service, "/spec/type") == "ExternalName" || is_headless(service) {
            return Ok(());
        }
        let given = service["spec"]["clusterIPs"][0].as_str().unwrap_or_default().to_owned();
        let address = if given.is_empty() {
            let free = self.store.held(|held| free_address(held, self.names));
            free.ok_or_else(|| {
                let name = meta(service, "name");
                Failure::internal(format!(
                    "failed to allocate a serviceIP for Service {name:?}: range is full"
                ))
            })?
        } else {
            let why = match number(&given) {
                None => Some("the provided network does not match the current range"),
                Some(API_SERVER) => Some("provided IP is already allocated"),
                Some(host) if self.store.held(|held| held.addresses.contains(&address_of(host))) => {
                    Some("provided IP is already allocated")
                }
                Some(_) => None,
            };
            if let Some(why) = why {
                let mut errors = Errors::default();
                let all = service["spec"]["clusterIPs"].clone();
                errors.invalid("spec.clusterIPs", all, format!("failed to allocate IP {given}: {why}"));
                return Err(self.invalid(service, errors));
            }
            given
        };
        let spec = map_mut(service, "spec");
        spec.insert("clusterIPs".to_owned(), json!([address]));
        spec.insert("clusterIP".to_owned(), json!(address));
        Ok(())
    }

    /// Ports with the same number, of different protocols, share a node port.
    fn new_ports(&self, service: &mut Value, held: &mut Ports<'_>) -> Result<(), Failure> {
        let name = meta(service, "name").to_owned();
        let gives = gives_node_ports(&service["spec"]);
        let Some(ports) = service["spec"]["ports"].as_array_mut() else { return Ok(()) };
        let mut of_number: Vec<(i64, i64)> = Vec::new();
        for index in 0..ports.len() {
            let (number, wanted) = (number_in(&ports[index], "port"), number_in(&ports[index], "nodePort"));
            if wanted == 0 && !gives {
                continue;
            }
            let known = of_number.iter().find(|(other, _)| *other == number).map(|(_, given)| *given);
            let given = match known {
                None => {
                    let is_of_it =
                        |port: &&Value| number_in(port, "port") == number && number_in(port, "nodePort") != 0;
                    let requested = ports.iter().find(is_of_it).map(|port| number_in(port, "nodePort"));
                    let given = match requested {
                        Some(requested) => held.take(self.kind, &name, index, requested)?,
                        None => held.next()?,
                    };
                    of_number.push((number, given));
                    given
                }
                Some(known) if wanted == 0 || wanted == known => known,
                Some(_) => held.take(self.kind, &name, index, wanted)?,
            };
            as_map(&mut ports[index]).insert("nodePort".to_owned(), json!(given));
        }
        Ok(())
    }

    fn changed_ports(&self, new: &mut Value, old: &Value, held: &mut Ports<'_>) -> Result<(), Failure> {
        let name = meta(new, "name").to_owned();
        let gives = gives_node_ports(&new["spec"]);
        let before = node_ports(old);
        for (index, port) in new["spec"]["ports"].as_array_mut().into_iter().flatten().enumerate() {
            match number_in(port, "nodePort") {
                0 if !gives => {}
                0 => {
                    let given = held.next()?;
                    as_map(port).insert("nodePort".to_owned(), json!(given));
                }
                wanted if before.contains(&wanted) || held.taken.contains(&wanted) => {}
                wanted => drop(held.take(self.kind, &name, index, wanted)?),
            }
        }
        Ok(())
    }

    /// The port at which load balancers ask a node whether it has an endpoint.
    fn health_check(&self, new: &mut Value, old: &Value, held: &mut Ports<'_>) -> Result<(), Failure> {
        if !needs_health_check(&new["spec"]) || needs_health_check(&old["spec"]) {
            return Ok(());
        }
        let wanted = number_in(&new["spec"], "healthCheckNodePort");
        let given = if wanted == 0 {
            held.next()?
        } else {
            held.check(wanted).map_err(|why| {
                Failure::internal(format!(
                    "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                ))
            })?;
            wanted
        };
        map_mut(new, "spec").insert("healthCheckNodePort".to_owned(), json!(given));
        Ok(())
    }
}

/// The node ports that are free for one request.
struct Ports<'a> {
    store: &'a Store,
    names: &'a Names,
    /// The addresses and ports that this request has got already.
    taken: Vec<i64>,
}

impl<'a> Ports<'a> {
    fn of(allocator: &Allocator<'a>) -> Self {
        Ports { store: allocator.store, names: allocator.names, taken: Vec::new() }
    }

    fn is_free(&self, port: i64) -> bool {
        !self.taken.contains(&port) && !self.store.held(|held| held.ports.contains(&port))
    }

    fn check(&mut self, port: i64) -> Result<(), &'static str> {
        if !(FIRST_PORT..=LAST_PORT).contains(&port) {
            return Err("provided port is not in the valid range. The range of valid ports is 30000-32767");
        }
        if !self.is_free(port) {
            return Err("provided port is already allocated");
        }
        self.taken.push(port);
        Ok(())
    }

    fn take(&mut self, kind: &Kind, name: &str, index: usize, port: i64) -> Result<i64, Failure> {
        let Err(why) = self.check(port) else { return Ok(port) };
        let field = format!("spec.ports[{index}].nodePort");
        let detail = format!("Invalid value: {port}: {why}");
        Err(Failure::invalid(kind, name, &[FieldError { field, reason: "FieldValueInvalid", detail }]))
    }

    fn next(&mut self) -> Result<i64, Failure> {
        let (first, count) = (FIRST_PORT + STATIC_PORTS, LAST_PORT - FIRST_PORT - STATIC_PORTS + 1);
        let start = i64::from(self.names.below(u32::try_from(count).unwrap_or_default()));
        let above = (0..count).map(|step| first + (start + step) % count);
        let free = above.chain(FIRST_PORT..first).find(|port| self.is_free(*port));
        let port = free.ok_or_else(|| Failure::internal("failed to allocate a nodePort: range is full"))?;
        self.taken.push(port);
        Ok(port)
    }
}

fn free_address(held: &Held, names: &Names) -> Option<String> {
    let (first, count) = (STATIC_ADDRESSES + 1, SIZE - 2 - STATIC_ADDRESSES);
    let start = names.below(count);
    let above = (0..count).map(|step| first + (start + step) % count);
    let mut all = above.chain(API_SERVER + 1..first).map(address_of);
    all.find(|address| !held.addresses.contains(address)).map(|address| address.to_string())
}

fn address_of(host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(NETWORK + host)
}

/// The number of an address in the range, whose first and last ones nobody can have.
fn number(address: &str) -> Option<u32> {
    let address: Ipv4Addr = address.parse().ok()?;
    address.to_bits().checked_sub(NETWORK).filter(|host| (1..SIZE - 1).contains(host))
}

fn gives_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort"
        || spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false
}
