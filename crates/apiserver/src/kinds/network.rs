//! The kinds of the groups networking and discovery.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR};

use super::lists;
use super::row::Subresource::Status;
use super::row::{Generation, Kind, of};
use crate::defaults::cluster as defaults;
use crate::table::cluster as table;
use crate::table::row::label_selector;
use crate::validate::{endpoints, network};
use crate::warnings;

pub(super) static NETWORKING: &[Kind] = &[
    Kind {
        short_names: &["ing"],
        subresources: &[Status],
        generation: Generation::Spec,
        lists: &lists::INGRESS,
        defaults: defaults::ingress,
        validate: network::new_ingress,
        validate_update: Some(|new, _, errors| network::ingress(new, errors)),
        warn: warnings::objects::ingress,
        columns: &["Name", "Class", "Hosts", "Address", "Ports", "Age"],
        cells: table::ingress,
        ..of::<Ingress>()
    },
    Kind {
        generation: Generation::Spec,
        defaults: defaults::ingress_class,
        validate: network::ingress_class,
        validate_update: Some(network::ingress_class_update),
        columns: &["Name", "Controller", "Parameters", "Age"],
        cells: table::ingress_class,
        ..of::<IngressClass>()
    },
    Kind {
        short_names: &["netpol"],
        generation: Generation::Spec,
        lists: &lists::NETWORK_POLICY,
        defaults: defaults::network_policy,
        validate: network::network_policy,
        columns: &["Name", "Pod-Selector", "Age"],
        cells: |row| vec![row.name(), label_selector(row.at("/spec/podSelector")), row.age()],
        ..of::<NetworkPolicy>()
    },
    Kind {
        short_names: &["ip"],
        columns: &["Name", "ParentRef", "Age"],
        cells: table::ip_address,
        ..of::<IPAddress>()
    },
    Kind {
        subresources: &[Status],
        lists: &lists::WITH_CONDITIONS,
        defaults: defaults::empty_status,
        columns: &["Name", "CIDRs", "Age"],
        cells: |row| vec![row.name(), row.texts("/spec/cidrs"), row.age()],
        ..of::<ServiceCIDR>()
    },
];

pub(super) static DISCOVERY: &[Kind] = &[Kind {
    generation: Generation::Content,
    defaults: defaults::endpoint_slice,
    validate: endpoints::endpoint_slice,
    validate_update: Some(endpoints::endpoint_slice_update),
    warn: warnings::objects::endpoint_slice,
    columns: &["Name", "AddressType", "Ports", "Endpoints", "Age"],
    cells: table::endpoint_slice,
    ..of::<EndpointSlice>()
}];
