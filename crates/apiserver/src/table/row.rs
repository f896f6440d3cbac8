//! An object whose cells are made, and the forms of cells that several kinds have.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::selector::LabelSelector;

/// An object whose cells are made.
pub(crate) struct Row<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl Row<'_> {
    /// The value at a JSON pointer, or null.
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(crate) fn name(&self) -> Value {
        self.text("/metadata/name")
    }

    pub(crate) fn age(&self) -> Value {
        since(self.at("/metadata/creationTimestamp"), self.now).into()
    }

    /// Absent is "".
    pub(crate) fn text(&self, pointer: &str) -> Value {
        self.at(pointer).as_str().unwrap_or_default().into()
    }

    /// The text, or another one where there is none.
    pub(crate) fn text_or(&self, pointer: &str, absent: &str) -> Value {
        match self.at(pointer).as_str() {
            Some(text) if !text.is_empty() => text.into(),
            _ => absent.into(),
        }
    }

    /// Absent is false.
    pub(crate) fn flag(&self, pointer: &str) -> Value {
        self.at(pointer).as_bool().unwrap_or(false).into()
    }

    /// Absent is 0.
    pub(crate) fn number(&self, pointer: &str) -> Value {
        number(self.at(pointer)).into()
    }

    /// The texts of a list.
    pub(crate) fn texts(&self, pointer: &str) -> Value {
        items(self.at(pointer)).filter_map(Value::as_str).collect::<Vec<_>>().join(",").into()
    }

    /// How many entries a list or map has.
    pub(crate) fn size(&self, pointer: &str) -> usize {
        match self.at(pointer) {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        }
    }

    /// The owner that controls the object, as kubectl names it: `daemonset.apps/web`.
    pub(crate) fn controller(&self) -> Value {
        let owner = items(self.at("/metadata/ownerReferences")).find(|owner| owner["controller"] == true);
        let Some(owner) = owner else { return "<none>".into() };
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let group =
            text("apiVersion").split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        format!("{}/{}", format!("{}{group}", text("kind")).to_lowercase(), text("name")).into()
    }

    /// The names and the images of the containers of the template.
    pub(super) fn containers(&self) -> [Value; 2] {
        self.containers_at("/spec/template/spec/containers")
    }

    /// The same of containers elsewhere.
    pub(crate) fn containers_at(&self, pointer: &str) -> [Value; 2] {
        let containers = self.at(pointer);
        ["name", "image"].map(|field| {
            let texts = items(containers).map(|container| container[field].as_str().unwrap_or_default());
            json!(texts.collect::<Vec<_>>().join(","))
        })
    }
}

/// A selector that is a plain map of labels.
pub(crate) fn label_map(labels: &Value) -> Value {
    let labels = labels.as_object().into_iter().flatten();
    let terms: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    joined_or_none(&terms)
}

pub(crate) fn label_selector(selector: &Value) -> Value {
    match LabelSelector::from_spec(selector) {
        Ok(selector) if selector.is_empty() => "<none>".into(),
        Ok(selector) => selector.to_string().into(),
        Err(_) if selector.is_null() => "<none>".into(),
        Err(_) => "<error>".into(),
    }
}

pub(super) fn joined_or_none<T: AsRef<str>>(parts: &[T]) -> Value {
    if parts.is_empty() {
        return "<none>".into();
    }
    parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(",").into()
}

pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// The age of a timestamp as kubectl writes it; `<unknown>` without one.
pub(crate) fn since(timestamp: &Value, now: Timestamp) -> String {
    match timestamp.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => duration(now.duration_since(then)),
        None => "<unknown>".to_owned(),
    }
}

/// Two or three significant digits: `5s`, `2m3s`, `5h`, `3d4h` (apimachinery `util/duration`).
pub(super) fn duration(duration: jiff::SignedDuration) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let seconds = duration.as_secs();
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    match seconds {
        // Two machines rarely agree to the second; beyond that the clock is wrong.
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}
