//! The metadata of any object from protobuf (upstream: `ObjectMeta` in `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`).
//! They are field 1 of every kind, and of the `PartialObjectMetadata` that stands for one.

use super::FieldsWire;
use crate::model::protobuf::{Fields, Malformed};
use crate::model::wire::{OwnerWire, Time};

impl<'a> FieldsWire<'a> {
    pub(super) fn from_object(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut metadata = FieldsWire::default();
        for field in Fields(message) {
            if let (1, value) = field? {
                metadata = FieldsWire::from_protobuf(value.bytes()?)?;
            }
        }
        Ok(metadata)
    }

    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut metadata = FieldsWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => metadata.name = value.text()?,
                (3, value) => metadata.namespace = value.text()?,
                (5, value) => metadata.uid = value.text()?,
                (6, value) => metadata.resource_version = value.text()?,
                (9, value) => metadata.deletion_timestamp = value.time()?.map(Time),
                (13, value) => {
                    let owner = OwnerWire::from_protobuf(value.bytes()?)?;
                    metadata.owner_references.get_or_insert_default().push(owner);
                }
                (14, value) => metadata.finalizers.get_or_insert_default().push(value.text()?),
                _ => {}
            }
        }
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::metadata::Metadata;

    /// A field that holds a string or a message.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            field.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        field.push(length as u8);
        [field, bytes.to_vec()].concat()
    }

    fn identity() -> Vec<u8> {
        [field(1, b"web"), field(3, b"shop"), field(5, b"u"), field(6, b"7")].concat()
    }

    fn refusal(metadata: &[u8]) -> String {
        Metadata::decode_protobuf(&field(1, metadata)).unwrap_err().to_string()
    }

    #[test]
    fn fields_that_ownership_does_not_need_are_stepped_over_whatever_they_hold() {
        // No valid managedFields, no valid labels, a spec of nothing but openings of messages.
        let managed = field(1, &[identity(), vec![0x8a, 1, 3, 0xff, 0xff, 0xff]].concat());
        let labels = field(1, &[identity(), field(11, &[0xff; 300])].concat());
        let spec = [field(1, &identity()), field(2, &[0x12, 0x7f].repeat(100_000))].concat();
        for message in [managed, labels, spec] {
            let object = Metadata::decode_protobuf(&message).unwrap();
            assert_eq!((object.name.as_str(), object.uid.to_string().as_str()), ("web", "u"));
            assert_eq!((object.version(), object.owners.len()), (Some(7), 0));
        }
    }

    #[test]
    fn lengths_beyond_the_message_are_refused() {
        let huge = [identity(), vec![13 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        assert!(refusal(&huge).contains("longer than its message"), "{}", refusal(&huge));
        let in_an_owner = [identity(), field(13, &[4 << 3 | 2, 0x7f, b'o'])].concat();
        assert!(refusal(&in_an_owner).contains("longer than its message"), "{}", refusal(&in_an_owner));
        let wrong_type = [identity(), vec![14 << 3, 1]].concat();
        assert!(refusal(&wrong_type).contains("a number in place of"), "{}", refusal(&wrong_type));
    }

    #[test]
    fn an_object_without_a_name_is_refused_by_the_name_of_the_field() {
        assert!(Metadata::decode_protobuf(b"").is_err());
        assert!(refusal(&field(5, b"u")).contains("metadata.name"));
    }
}
