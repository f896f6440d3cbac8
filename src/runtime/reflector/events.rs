//! The effect of a watch's events on the destination.

use super::{DecodeError, End, EventSplitter, Reflector, Version, WatchEvent};
use crate::runtime::api::ApiError;

impl Reflector {
    /// Applies all complete events.
    pub(super) fn read(&mut self, events: &mut EventSplitter, accept_older: bool) -> Result<(), End> {
        loop {
            let event = match events.next() {
                Ok(None) => return Ok(()),
                Ok(Some(event)) => event,
                Err(error) => return Err(self.unreadable(&error)),
            };
            match events.read(&event) {
                Ok(WatchEvent::Put(object)) => {
                    self.quiet = false;
                    self.destination.put(object);
                }
                Ok(WatchEvent::Delete(object)) => {
                    self.quiet = false;
                    self.destination.delete(object);
                }
                Ok(WatchEvent::Bookmark { version, ends_list: true }) if self.destination.is_listing() => {
                    self.accepts(&version).map_err(|error| self.unreadable(&error))?;
                    if self.is_stale(&version, accept_older) {
                        return Err(End::Stale);
                    }
                    self.end_list(&version);
                }
                Ok(WatchEvent::Bookmark { version, .. }) => {
                    self.accepts(&version).map_err(|error| self.unreadable(&error))?;
                    self.destination.bookmark(&version);
                }
                Ok(WatchEvent::Error(status)) => {
                    let error = ApiError::Status(status);
                    if error.is_gone() {
                        return Err(End::Expired);
                    }
                    tracing::warn!(resource = self.resource.plural, %error, "watch ended with an error; resuming");
                    return Err(End::Broken("error_event"));
                }
                Ok(WatchEvent::Unknown(kind)) => {
                    tracing::warn!(
                        resource = self.resource.plural,
                        kind,
                        "unknown type of watch event ignored"
                    );
                }
                Err(error) => return Err(self.unreadable(&error)),
            }
            self.progress = true;
        }
    }

    /// # Errors
    /// When the version is no number and the cache depends on numbers.
    pub(super) fn accepts(&self, version: &Version) -> Result<(), DecodeError> {
        if !self.destination.takes_any_version() {
            version.number()?;
        }
        Ok(())
    }

    fn unreadable(&self, error: &DecodeError) -> End {
        tracing::warn!(resource = self.resource.plural, %error, "watch cannot be decoded; resuming");
        match error {
            DecodeError::TooLong(_) => End::Broken("too_long"),
            DecodeError::Malformed(_) => End::Broken("malformed"),
        }
    }
}
