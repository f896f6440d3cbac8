//! The user of a request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";

/// The group of all others.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The name of an unauthenticated user.
pub const ANONYMOUS: &str = "system:anonymous";

/// A user, in the form of a review.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name.
    #[serde(rename(serialize = "user", deserialize = "username"))]
    pub name: String,
    /// Distinguishes two users of one name; often empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Extra attributes, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
    }

    /// Adds the group of all authenticated users. A user called anonymous is not authenticated, whatever the source
    /// (upstream: `AuthenticatedGroupAdder`).
    pub(super) fn authenticated(mut self) -> Self {
        if self.name == ANONYMOUS {
            return self;
        }
        let marks = [AUTHENTICATED, UNAUTHENTICATED];
        if !self.groups.iter().any(|group| marks.contains(&group.as_str())) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_called_anonymous_is_not_authenticated_whatever_the_source() {
        let groups = |name: &str| User { name: name.to_owned(), ..User::default() }.authenticated().groups;
        assert_eq!(groups("alice"), [AUTHENTICATED]);
        assert_eq!(groups(ANONYMOUS), [""; 0]);
    }
}
