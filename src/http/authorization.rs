//! Authorizes a request by a SubjectAccessReview of the API server.
//!
//! Two answers need no review, as upstream has it: members of `system:masters` may read everything, and
//! every client may read the paths of `--authorization-always-allow-paths`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::authentication::User;
use super::metrics::ServingMetrics;
use super::review_cache::{Answered, ClientClass, Key, NotReviewed, ReviewCache, shorten};
use super::reviews::{Kind, Reviews};
use crate::runtime::api::ApiError;

const REVIEW: Kind = Kind {
    path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    api_version: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
};

/// How long a missing answer is cached.
const FAILED: Duration = Duration::from_secs(1);

/// A path that cannot be always allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--authorization-always-allow-paths: only a trailing * is allowed in {0:?}")]
pub struct PathError(pub String);

/// Paths that every client may read: exactly, or with a trailing `*` all with that prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedPaths {
    exact: BTreeSet<String>,
    prefixes: Vec<String>,
}

impl AllowedPaths {
    /// Reads the paths. `/healthz` does not allow `/healthz/ping`, and `/healthz*` does.
    ///
    /// # Errors
    /// When a star stands anywhere but at the end.
    pub fn new<S: AsRef<str>>(paths: &[S]) -> Result<Self, PathError> {
        let mut allowed = AllowedPaths::default();
        for given in paths {
            let path = given.as_ref().strip_prefix('/').unwrap_or(given.as_ref());
            let prefix = path.strip_suffix('*');
            if prefix.unwrap_or(path).contains('*') {
                return Err(PathError(given.as_ref().to_owned()));
            }
            match prefix {
                Some(prefix) => allowed.prefixes.push(prefix.to_owned()),
                None => drop(allowed.exact.insert(path.to_owned())),
            }
        }
        Ok(allowed)
    }

    /// Whether every client may read this path.
    pub fn allow(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.contains(path) || self.prefixes.iter().any(|prefix| path.starts_with(prefix.as_str()))
    }
}

/// The request to authorize.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Question {
    #[serde(flatten)]
    pub(super) user: User,
    #[serde(rename = "nonResourceAttributes")]
    pub(super) action: Action,
}

/// A method on a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Action {
    pub(super) path: String,
    /// The method in lower case.
    pub(super) verb: String,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    /// With the reason, which may be empty.
    Denied(String),
    /// There was no answer.
    Failed(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    allowed: bool,
    reason: String,
}

/// Authorizes requests.
pub(super) struct Authorizer {
    reviews: Reviews,
    allowed_paths: AllowedPaths,
    allowed_groups: Vec<String>,
    allowed_ttl: Duration,
    denied_ttl: Duration,
    cache: ReviewCache<Decision>,
    metrics: ServingMetrics,
}

impl Authorizer {
    pub(super) fn new(
        reviews: Reviews,
        allowed_paths: AllowedPaths,
        allowed_groups: Vec<String>,
        (allowed_ttl, denied_ttl): (Duration, Duration),
        metrics: ServingMetrics,
    ) -> Self {
        let cache = ReviewCache::default();
        Authorizer { reviews, allowed_paths, allowed_groups, allowed_ttl, denied_ttl, cache, metrics }
    }

    /// The answer if no review is needed.
    pub(super) fn at_once(&self, question: &Question) -> Option<Decision> {
        let masters = question.user.groups.iter().any(|group| self.allowed_groups.contains(group));
        if masters || self.allowed_paths.allow(&question.action.path) {
            return Some(Decision::Allowed);
        }
        self.cache.known(key(question)?, tokio::time::Instant::now())
    }

    /// Sends a review, after `pay` unless the last answer to this was "allowed".
    pub(super) async fn review(
        &self,
        question: Question,
        pay: impl FnOnce() -> bool,
    ) -> Result<Decision, NotReviewed> {
        let (reviews, metrics) = (self.reviews.clone(), self.metrics.clone());
        let (allowed, denied) = (self.allowed_ttl, self.denied_ttl);
        let Some(key) = key(&question) else {
            return Ok(Decision::Failed("the request cannot be written as a review".to_owned()));
        };
        let ask = |class| async move {
            let answer = ask(&reviews, class, &question, &metrics).await;
            let (keep, good) = match &answer {
                Decision::Allowed => (allowed, Some(true)),
                Decision::Denied(_) => (denied, Some(false)),
                Decision::Failed(_) => (FAILED, None),
            };
            Answered { answer, keep, good }
        };
        self.cache.get(key, pay, ask).await
    }
}

/// The hash of the review that would be sent, which tells everything that the answer depends on.
fn key(question: &Question) -> Option<Key> {
    serde_json::to_vec(question).ok().map(|review| Key::of(&review))
}

async fn ask(
    reviews: &Reviews,
    class: ClientClass,
    question: &Question,
    metrics: &ServingMetrics,
) -> Decision {
    match reviews.ask(class, &REVIEW, question, &metrics.access_reviews).await {
        Ok(Status { allowed: true, .. }) => Decision::Allowed,
        Ok(Status { reason, .. }) => Decision::Denied(shorten(reason)),
        // An API server without reviews, such as a test bed's, allows no user; that is no failure.
        Err(error) if error.is_not_found() => Decision::Denied(
            "the API server has no SubjectAccessReviews (authorization.k8s.io/v1), so no user is allowed \
             more than the paths of --authorization-always-allow-paths"
                .to_owned(),
        ),
        Err(error @ ApiError::Status(_)) if error.is_forbidden() => Decision::Failed(format!(
            "{error}. Usually a ClusterRoleBinding to the ClusterRole system:auth-delegator is missing"
        )),
        Err(error) => Decision::Failed(shorten(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_allowed_exactly_or_with_a_star_by_its_beginning() {
        let allowed = AllowedPaths::new(&["/healthz", "livez", "/debug/*"]).unwrap();
        for path in ["/healthz", "/livez", "/debug/", "/debug/x/y"] {
            assert!(allowed.allow(path), "{path}");
        }
        for path in ["/healthz/", "/healthz/ping", "/Healthz", "/debug", "/metrics", "/"] {
            assert!(!allowed.allow(path), "{path}");
        }
        assert!(AllowedPaths::new(&["*"]).unwrap().allow("/anything"));
        assert!(AllowedPaths::new(&["/a*b"]).unwrap_err().to_string().contains("/a*b"));
        assert!(AllowedPaths::new(&["/a**"]).is_err());
    }

    #[test]
    fn each_part_of_a_question_changes_its_key() {
        let question = |name: &str, groups: &[&str], extra: &[(&str, &[&str])], path: &str, verb: &str| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let extra = extra.iter().map(|(key, values)| ((*key).to_owned(), owned(values))).collect();
            let user = User { name: name.into(), groups: owned(groups), extra, ..User::default() };
            Question { user, action: Action { path: path.into(), verb: verb.into() } }
        };
        let mut with_uid = question("a", &["g"], &[], "/p", "get");
        with_uid.user.uid = "g".into();
        let questions = [
            question("a", &["g"], &[], "/p", "get"),
            question("b", &["g"], &[], "/p", "get"),
            question("a", &[], &[], "/p", "get"),
            question("a", &["g", "h"], &[], "/p", "get"),
            question("a", &["gh"], &[], "/p", "get"),
            question("a", &["g\",\"h"], &[], "/p", "get"),
            question("a", &["h", "g"], &[], "/p", "get"),
            question("a", &["g"], &[("k", &["v"])], "/p", "get"),
            question("a", &["g"], &[("k", &["v", "w"])], "/p", "get"),
            question("a", &["g"], &[("k", &["v"]), ("w", &[])], "/p", "get"),
            question("a", &["g"], &[], "/q", "get"),
            question("a", &["g"], &[], "/p", "post"),
            with_uid,
        ];
        let keys: Vec<Key> = questions.iter().map(|question| key(question).unwrap()).collect();
        for (at, it) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == it), Some(at), "{:?}", questions[at]);
        }
        assert_eq!(key(&questions[0]), key(&questions[0].clone()));
    }

    #[test]
    fn a_question_is_written_as_the_spec_of_a_review() {
        let user = User { name: "ada".into(), groups: vec!["g".into()], ..User::default() };
        let action = Action { path: "/metrics".into(), verb: "get".into() };
        assert_eq!(
            serde_json::to_value(Question { user, action }).unwrap(),
            serde_json::json!({
                "user": "ada",
                "groups": ["g"],
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            })
        );
    }
}
