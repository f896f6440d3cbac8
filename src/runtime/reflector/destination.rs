//! Where the objects of a list and a watch go.

use crate::model::Record;
use crate::model::record::Encoded;
use crate::model::wire::Version;
use crate::runtime::delta_handler::DeltaHandler;
use crate::runtime::request;

/// The encodings in which objects are asked for, by preference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accept {
    /// In a list.
    pub(crate) list: &'static str,
    /// In a watch.
    pub(crate) watch: &'static str,
    /// In a list of a server that refuses to look at anything but JSON.
    pub(crate) list_in_json: &'static str,
    /// In a watch of such a server.
    pub(crate) watch_in_json: &'static str,
}

/// Takes what a reflector lists and watches, in the order in which it arrives.
pub(crate) trait Destination: Send {
    /// How to ask for the objects.
    fn accept(&self) -> Accept;

    /// The version up to which everything has arrived; 0 before the first list has ended.
    fn position(&self) -> u64;

    /// Where a watch goes on.
    fn resumes_at(&self) -> Version {
        Version::Number(self.position())
    }

    /// Whether it can do with versions that are no numbers.
    fn takes_any_version(&self) -> bool {
        false
    }

    /// How many objects there are, for the log.
    fn len(&self) -> usize;

    /// Whether a list has begun and not ended.
    fn is_listing(&self) -> bool;

    /// Whether the API server may stop serving the resource, as when a CustomResourceDefinition is deleted.
    fn may_be_removed(&self) -> bool {
        false
    }

    /// A list begins. With `accept_older` its objects are newer than what is there, whatever their versions are.
    fn begin_list(&mut self, accept_older: bool);

    /// The list that was begun last has ended: there is nothing that it has not shown.
    fn end_list(&mut self, version: &Version);

    /// A watch has ended. Until the next one shows something, the API server may have gone back to an earlier state.
    fn end_watch(&mut self) {}

    /// An object was listed, added or modified.
    fn put(&mut self, object: Encoded<'_>);

    /// An object was deleted; its last state.
    fn delete(&mut self, object: Encoded<'_>);

    /// Everything up to this version has arrived.
    fn bookmark(&mut self, version: &Version);
}

impl<T: Record> Destination for DeltaHandler<T> {
    fn accept(&self) -> Accept {
        let both = if T::HAS_PROTOBUF { request::PROTOBUF } else { request::JSON };
        Accept { list: both, watch: both, list_in_json: request::JSON, watch_in_json: request::JSON }
    }

    fn position(&self) -> u64 {
        self.store.position()
    }

    fn len(&self) -> usize {
        self.store.len()
    }

    fn is_listing(&self) -> bool {
        DeltaHandler::is_listing(self)
    }

    fn begin_list(&mut self, accept_older: bool) {
        DeltaHandler::begin_list(self, accept_older);
    }

    fn end_list(&mut self, version: &Version) {
        if let Ok(version) = version.number() {
            DeltaHandler::end_list(self, version);
        }
    }

    fn put(&mut self, object: Encoded<'_>) {
        DeltaHandler::put(self, object);
    }

    fn delete(&mut self, object: Encoded<'_>) {
        DeltaHandler::delete(self, object);
    }

    fn bookmark(&mut self, version: &Version) {
        if let Ok(version) = version.number() {
            DeltaHandler::bookmark(self, version);
        }
    }
}
