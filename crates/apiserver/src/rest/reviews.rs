//! Reviews of access and identity: questions that are answered and not stored. Nobody is authenticated here, and everybody
//! may do everything.

use serde_json::json;

use super::body::{self, Decoded};
use super::reply::Reply;
use crate::request::Request;
use crate::status::Failure;
use crate::validate::Errors;

/// The answer to a review.
pub(super) fn answer(request: &Request) -> Result<Reply, Failure> {
    let Decoded { mut object, warnings } = body::decode(request)?;
    body::place_object(&request.place, &mut object)?;
    let mut errors = Errors::default();
    (request.kind().validate)(&object, &mut errors);
    let errors = errors.into_vec();
    if !errors.is_empty() {
        // Upstream names no kind here.
        let failure = Failure::invalid_as("", request.kind().group, "", &errors);
        return Err(failure.with_warnings(&warnings));
    }
    object["status"] = match request.kind().kind {
        "TokenReview" => {
            let why = "this API server authenticates nobody, and judges no token";
            return Err(Failure::not_implemented(why));
        }
        "SelfSubjectReview" => {
            json!({"userInfo": {"username": "system:anonymous", "groups": ["system:unauthenticated"]}})
        }
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        _ => {
            json!({"allowed": true, "reason": "this API server judges no rights: everybody may do everything"})
        }
    };
    Ok(Reply { warnings, ..Reply::value(201, &object) })
}
