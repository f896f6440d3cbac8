//! A pod from protobuf (upstream: `k8s.io/api/core/v1/generated.proto`). Only what the record holds is read; all else,
//! most of the bytes, is stepped over.

use super::{
    ContainerStatusWire, InitContainerWire, Moment, PodConditionWire, PodWire, SaidWire, SpecWire, StateWire,
    StatusWire, TerminatedWire,
};
use crate::model::protobuf::{Fields, Malformed};
use crate::model::wire::{MetaWire, Time};

impl<'a> PodWire<'a> {
    pub(super) fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut pod = PodWire { metadata: MetaWire::default(), spec: None, status: None };
        for field in Fields(message) {
            match field? {
                (1, value) => pod.metadata = MetaWire::from_protobuf(value.bytes()?)?,
                (2, value) => pod.spec = Some(SpecWire::from_protobuf(value.bytes()?)?),
                (3, value) => pod.status = Some(StatusWire::from_protobuf(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(pod)
    }
}

impl<'a> SpecWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut spec = SpecWire::default();
        for field in Fields(message) {
            match field? {
                (10, value) => spec.node_name = value.text()?,
                (20, value) => {
                    let container = InitContainerWire::from_protobuf(value.bytes()?)?;
                    spec.init_containers.get_or_insert_default().push(container);
                }
                _ => {}
            }
        }
        Ok(spec)
    }
}

impl<'a> InitContainerWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut container = InitContainerWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => container.name = value.text()?,
                (24, value) => container.restart_policy = value.text()?,
                _ => {}
            }
        }
        Ok(container)
    }
}

impl<'a> StatusWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut status = StatusWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => status.phase = value.text()?,
                (2, value) => {
                    let condition = PodConditionWire::from_protobuf(value.bytes()?)?;
                    status.conditions.get_or_insert_default().push(condition);
                }
                (3, value) => status.message = value.text()?,
                (4, value) => status.reason = value.text()?,
                (7, value) => status.start_time = Moment::Known(value.time()?),
                (8, value) => {
                    let container = ContainerStatusWire::from_protobuf(value.bytes()?)?;
                    status.container_statuses.get_or_insert_default().push(container);
                }
                (10, value) => {
                    let container = ContainerStatusWire::from_protobuf(value.bytes()?)?;
                    status.init_container_statuses.get_or_insert_default().push(container);
                }
                _ => {}
            }
        }
        Ok(status)
    }
}

impl<'a> PodConditionWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut condition = PodConditionWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => condition.kind = value.text()?,
                (2, value) => condition.status = value.text()?,
                (4, value) => condition.last_transition_time = value.time()?.map(Time),
                (5, value) => condition.reason = value.text()?,
                (6, value) => condition.message = value.text()?,
                _ => {}
            }
        }
        Ok(condition)
    }
}

impl<'a> ContainerStatusWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut status = ContainerStatusWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => status.name = value.text()?,
                (2, value) => status.state = Some(StateWire::from_protobuf(value.bytes()?)?),
                (3, value) => status.last_state = Some(StateWire::from_protobuf(value.bytes()?)?),
                (5, value) => status.restart_count = Some(value.int32()?),
                _ => {}
            }
        }
        Ok(status)
    }
}

impl<'a> StateWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut state = StateWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => state.waiting = Some(SaidWire::from_protobuf(value.bytes()?)?),
                (3, value) => state.terminated = Some(TerminatedWire::from_protobuf(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(state)
    }
}

impl<'a> SaidWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut said = SaidWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => said.reason = value.text()?,
                (2, value) => said.message = value.text()?,
                _ => {}
            }
        }
        Ok(said)
    }
}

impl<'a> TerminatedWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut terminated = TerminatedWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => terminated.exit_code = Some(value.int32()?),
                (3, value) => terminated.reason = value.text()?,
                (4, value) => terminated.message = value.text()?,
                (6, value) => terminated.finished_at = Moment::Known(value.time()?),
                _ => {}
            }
        }
        Ok(terminated)
    }
}
