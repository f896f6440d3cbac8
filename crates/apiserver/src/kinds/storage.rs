//! The kinds of the groups storage and resource.

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
};

use super::lists;
use super::row::Subresource::Status;
use super::row::{Generation, Kind, of};
use crate::defaults::cluster as defaults;
use crate::rest::strategy;
use crate::table::{cluster as table, core};
use crate::validate::classes;
use crate::warnings;

pub(super) static STORAGE: &[Kind] = &[
    Kind {
        unconditional_update: false,
        lists: &lists::CSI_DRIVER,
        defaults: defaults::csi_driver,
        after_update: strategy::count_changes,
        validate: classes::csi_driver,
        validate_update: Some(classes::csi_driver_update),
        warn: warnings::objects::csi_driver,
        columns: table::CSI_DRIVER,
        cells: table::csi_driver,
        ..of::<CSIDriver>()
    },
    Kind {
        lists: &lists::CSI_NODE,
        defaults: defaults::empty_spec,
        columns: &["Name", "#Drivers", "Age"],
        cells: |row| vec![row.name(), row.size("/spec/drivers").into(), row.age()],
        ..of::<CSINode>()
    },
    Kind {
        unconditional_update: false,
        lists: &lists::CSI_CAPACITY,
        columns: core::CREATED,
        cells: core::created,
        ..of::<CSIStorageCapacity>()
    },
    Kind {
        short_names: &["sc"],
        defaults: defaults::storage_class,
        validate: classes::storage_class,
        validate_update: Some(classes::storage_class_update),
        warn: warnings::objects::storage_class,
        columns: &[
            "Name",
            "Provisioner",
            "ReclaimPolicy",
            "VolumeBindingMode",
            "AllowVolumeExpansion",
            "Age",
        ],
        cells: table::storage_class,
        ..of::<StorageClass>()
    },
    Kind {
        subresources: &[Status],
        lists: &lists::ATTACHMENT,
        defaults: defaults::volume_attachment,
        validate: classes::volume_attachment,
        validate_update: Some(classes::volume_attachment_update),
        columns: &["Name", "Attacher", "PV", "Node", "?Attached", "Age"],
        cells: |row| {
            vec![
                row.name(),
                row.text("/spec/attacher"),
                row.text("/spec/source/persistentVolumeName"),
                row.text("/spec/nodeName"),
                row.flag("/status/attached"),
                row.age(),
            ]
        },
        ..of::<VolumeAttachment>()
    },
    Kind {
        short_names: &["vac"],
        validate: classes::attributes_class,
        validate_update: Some(classes::attributes_class_update),
        columns: &["Name", "DriverName", "Age"],
        cells: |row| vec![row.name(), row.text("/driverName"), row.age()],
        ..of::<VolumeAttributesClass>()
    },
];

pub(super) static RESOURCE: &[Kind] = &[
    Kind { generation: Generation::Spec, ..of::<DeviceClass>() },
    Kind {
        subresources: &[Status],
        lists: &lists::RESOURCE_CLAIM,
        defaults: defaults::resource_claim,
        columns: &["Name", "State", "Age"],
        cells: |row| {
            let state = match row.at("/status/allocation").is_null() {
                true => "pending",
                false if row.size("/status/reservedFor") > 0 => "allocated,reserved",
                false => "allocated",
            };
            vec![row.name(), state.into(), row.age()]
        },
        ..of::<ResourceClaim>()
    },
    Kind { defaults: defaults::resource_claim_template, ..of::<ResourceClaimTemplate>() },
    Kind {
        generation: Generation::Spec,
        lists: &lists::RESOURCE_SLICE,
        columns: &["Name", "Node", "Driver", "Pool", "Age"],
        cells: |row| {
            vec![
                row.name(),
                row.text("/spec/nodeName"),
                row.text("/spec/driver"),
                row.text("/spec/pool/name"),
                row.age(),
            ]
        },
        ..of::<ResourceSlice>()
    },
];
