//! `--check-first`: reads all sources and dry-runs all objects on the server before it creates the first.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_manifest::ManifestObject;

use super::read::read;
use super::sources::Source;
use super::{Ready, Run, Stop, report};
use crate::api::ApiError;
use crate::output::Output;

impl Run<'_> {
    /// Creates the objects of all sources, or none if the dry run of one fails.
    pub(super) async fn all_at_once(&mut self, sources: &[Source], output: &mut Output) -> Result<(), Stop> {
        let mut all = Vec::new();
        for source in sources {
            for found in read(source, self.ends_at_defect(), output).await {
                match found {
                    Ok(found) => all.push(found),
                    Err(failure) => self.failures.push(failure),
                }
            }
        }
        let new = New::of(&all);
        for found in &all {
            if new.defines(found) && !self.is_served(found).await {
                output.note(&format!("note: {}: not checked: its kind is created by this run", found.origin));
            } else if let Some(ready) = self.ready(found.clone()).await? {
                self.check(&ready, &new, output).await;
            }
        }
        if !self.failures.is_empty() {
            output.note("note: nothing is created: the check of --check-first has failed");
            return Err(Stop::Checked);
        }
        for found in all {
            if let Some(ready) = self.ready(found).await? {
                self.create(ready, output).await?;
            }
        }
        Ok(())
    }

    async fn is_served(&mut self, found: &ManifestObject) -> bool {
        let resource = self.kinds.find(self.api, &found.api_version, &found.kind).await;
        resource.is_ok_and(|resource| resource.is_some())
    }

    async fn check(&mut self, ready: &Ready, new: &New, output: &mut Output) {
        let result = match self.send(ready, true).await {
            Err(error) if error.code() == Some(404) && new.has_namespace(&ready.body) => {
                self.check_elsewhere(ready, output).await
            }
            result => result.map(|answer| self.warn(&answer, output)),
        };
        if let Err(error) = result {
            self.failures.push(report::failure(&ready.origin, &ready.reference(), &error));
        }
    }

    /// Dry-runs an object in `default`, because its own namespace does not exist yet. The server validates everything but
    /// the name of the namespace in the same way.
    async fn check_elsewhere(&mut self, ready: &Ready, output: &mut Output) -> Result<(), ApiError> {
        let mut stand_in = ready.clone();
        stand_in.body["metadata"]["namespace"] = "default".into();
        match self.send(&stand_in, true).await {
            Ok(answer) => {
                self.warn(&answer, output);
                Ok(())
            }
            // `default` has an object of this name.
            Err(ApiError::Refused { code: 409, .. }) => Ok(()),
            // The right to create it in its own namespace does not imply the same right in `default`.
            Err(ApiError::Refused { code: 403 | 404, .. }) => {
                let why = "not checked: its namespace is created by this run";
                output.note(&format!("note: {}: {why}", ready.origin));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The namespaces and kinds that the objects of a run define.
struct New {
    namespaces: BTreeSet<String>,
    /// Groups and kinds.
    kinds: BTreeSet<(String, String)>,
}

impl New {
    fn of(all: &[ManifestObject]) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of_kind =
            |kind: &'static str| all.iter().filter(move |found| found.kind == kind).map(|found| &found.body);
        let namespaces = of_kind("Namespace").map(|body| text(&body["metadata"]["name"])).collect();
        let definitions = of_kind("CustomResourceDefinition").map(|body| &body["spec"]);
        let kinds = definitions.map(|spec| (text(&spec["group"]), text(&spec["names"]["kind"]))).collect();
        New { namespaces, kinds }
    }

    fn defines(&self, found: &ManifestObject) -> bool {
        let group = found.api_version.split_once('/').map_or("", |(group, _)| group);
        self.kinds.contains(&(group.to_owned(), found.kind.clone()))
    }

    fn has_namespace(&self, body: &Value) -> bool {
        body["metadata"]["namespace"].as_str().is_some_and(|namespace| self.namespaces.contains(namespace))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_manifest::{Origin, expand};

    use super::*;

    fn found(body: Value) -> ManifestObject {
        expand(&Origin::new("a.yaml", 0), body).remove(0).unwrap()
    }

    #[test]
    fn namespaces_and_kinds_of_the_same_run_are_known() {
        let names = json!({"plural": "widgets", "kind": "Widget"});
        let all = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                   "spec": {"group": "example.com", "names": names}}),
        ];
        let new = New::of(&all.map(found));
        let inside = |namespace: &str| json!({"metadata": {"namespace": namespace}});
        assert!(new.has_namespace(&inside("shop")) && !new.has_namespace(&inside("default")));
        let defines =
            |api_version: &str| new.defines(&found(json!({"apiVersion": api_version, "kind": "Widget"})));
        assert_eq!(
            ["example.com/v1", "example.com/v2", "v1", "x/v1"].map(defines),
            [true, true, false, false]
        );
    }
}
