//! Why containers of a pod do not start, and the events that say so.

use super::{
    image_name,
    record::{Container, Pod},
    references::Configs,
    status::Fault,
};

/// Why a container does not start, if it does not.
pub(super) fn of(
    pod: &Pod,
    container: &Container,
    configs: &Configs,
    never_ready: Option<&regex_lite::Regex>,
) -> Option<Fault> {
    let image = container.image();
    if let Some(message) = image_name::unparsable(image) {
        return Some(Fault { reason: INVALID_IMAGE_NAME, message });
    }
    if never_ready.is_some_and(|pattern| pattern.is_match(image)) {
        let message = format!("Back-off pulling image \"{image}\"");
        return Some(Fault { reason: IMAGE_PULL_BACK_OFF, message });
    }
    let message = configs.missing_env(pod, container)?;
    Some(Fault { reason: CONFIG_ERROR, message })
}

const INVALID_IMAGE_NAME: &str = "InvalidImageName";
const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// Whether the container starts as soon as something else exists.
pub(super) fn heals(fault: &Fault) -> bool {
    fault.reason == CONFIG_ERROR
}

/// The type, reason and message of the events about a container that does not start.
pub(super) fn events(container: &Container, fault: &Fault) -> Vec<(&'static str, &'static str, String)> {
    let image = container.image();
    match fault.reason {
        INVALID_IMAGE_NAME => vec![
            ("Warning", "InspectFailed", fault.message.clone()),
            ("Warning", "Failed", format!("Error: {INVALID_IMAGE_NAME}")),
        ],
        IMAGE_PULL_BACK_OFF => vec![
            (
                "Warning",
                "Failed",
                format!(
                    "Failed to pull image \"{image}\": the image matches the never-ready pattern of the pod simulator"
                ),
            ),
            ("Normal", "BackOff", fault.message.clone()),
        ],
        _ => vec![("Warning", "Failed", format!("Error: {}", fault.message))],
    }
}
