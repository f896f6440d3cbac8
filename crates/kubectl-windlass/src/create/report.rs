//! Messages about objects that were not created. Pure.

use windlass_manifest::Origin;

use crate::api::ApiError;
use crate::text::harmless;

/// The message for a refused or unanswered request about an object.
pub fn failure(origin: &Origin, reference: &str, error: &ApiError) -> String {
    let said = match error {
        ApiError::Refused { code: 401, .. } => {
            "the API server does not accept your credentials: log in again, or check --user, --token and the kubeconfig"
                .to_owned()
        }
        ApiError::Refused { code: 422, causes, .. } if !causes.is_empty() => {
            let causes: Vec<String> = causes.iter().map(|cause| format!("\n  {}", harmless(cause))).collect();
            return format!("{origin}: {reference} is invalid:{}", causes.concat());
        }
        ApiError::Refused { message, reason, .. } if reason.is_empty() => message.clone(),
        ApiError::Refused { message, reason, .. } => format!("{message} ({})", harmless(reason)),
        ApiError::Unanswered { message, .. } => unreachable(message),
    };
    format!("{origin}: {reference}: {said}")
}

/// The message about a server that does not answer.
pub fn unreachable(reason: &str) -> String {
    format!("no answer from the API server ({reason}); check its address in the kubeconfig or --server")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, causes: &[&str]) -> ApiError {
        let causes = causes.iter().map(|cause| (*cause).to_owned()).collect();
        let message = "the server's words".to_owned();
        ApiError::Refused { what: "w".into(), code, reason: "r".into(), message, causes }
    }

    fn said(error: &ApiError) -> String {
        failure(&Origin::new("a.yaml", 1), "pod/x", error)
    }

    #[test]
    fn a_refusal_has_its_origin_and_the_servers_words() {
        assert_eq!(said(&refused(409, &[])), "a.yaml: document 2: pod/x: the server's words (r)");
        assert!(said(&refused(401, &[])).contains("log in again"));
        let lost = ApiError::Unanswered { what: "w".into(), message: "connection refused".into() };
        assert!(said(&lost).contains("no answer from the API server (connection refused)"));
    }

    #[test]
    fn each_cause_of_an_invalid_object_has_a_line_of_its_own() {
        let text = said(&refused(422, &["spec.a: must be\nshort", "spec.b: required"]));
        assert_eq!(
            text,
            "a.yaml: document 2: pod/x is invalid:\n  spec.a: must be short\n  spec.b: required"
        );
        assert!(said(&refused(422, &[])).contains("the server's words"));
    }
}
