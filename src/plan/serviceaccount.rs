//! The ServiceAccount that pods use unless they name another: one in each namespace.

use serde_json::{Value, json};

use crate::model::{Namespace, ServiceAccount};

/// Its name.
pub const NAME: &str = "default";

/// Whether a namespace lacks it. In one that is being deleted nothing can be created.
pub fn is_missing(namespace: &Namespace, account: Option<&ServiceAccount>) -> bool {
    namespace.is_active && account.is_none()
}

/// The ServiceAccount to create.
pub fn new_account(namespace: &Namespace) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
           "metadata": {"name": NAME, "namespace": namespace.meta.key.name}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn namespace(phase: &str) -> Namespace {
        let json = json!({"metadata": {"name": "shop", "uid": "u", "resourceVersion": "1"},
                          "status": {"phase": phase}});
        Namespace::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    #[test]
    fn each_active_namespace_has_an_account_and_gets_it_again() {
        let account = new_account(&namespace("Active")).to_string();
        let account = account
            .replace("\"name\":\"default\"", "\"name\":\"default\",\"uid\":\"u\",\"resourceVersion\":\"2\"");
        let account = ServiceAccount::decode(&account, &mut Interner::default()).unwrap();
        assert_eq!(account.meta.key.to_string(), "shop/default");
        assert!(is_missing(&namespace("Active"), None));
        assert!(!is_missing(&namespace("Active"), Some(&account)));
        assert!(!is_missing(&namespace("Terminating"), None));
    }
}
