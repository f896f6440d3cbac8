//! The exercise: a controller that says in an annotation how many entries a Secret has. What a new controller costs is in this
//! file: a model, a plan, a file that implements `Controller`, and an entry. `tests/cluster/registry.rs` runs it
//! beside the daemon's own, and `crates/simulation/tests/exercise.rs` plays its game.

use windlass::controllers::registry as own;
use windlass::engine::entry::{KindEntry, Registry};

/// The model: the facts about a Secret that the controller needs.
mod model {
    use serde::Deserialize;
    use windlass::model::wire::MetaWire;
    use windlass::model::{Interner, Meta, Record, Resource};

    /// A Secret: how many entries it has, and how many it was last said to have.
    pub struct Secret {
        pub meta: Meta,
        pub entries: usize,
        pub said: Option<String>,
    }

    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        metadata: MetaWire<'a>,
        #[serde(default)]
        data: std::collections::BTreeMap<String, serde_json::Value>,
    }

    impl Record for Secret {
        const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Secret", plural: "secrets" };

        fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
            let Wire { metadata, data } = serde_json::from_str(json)?;
            let said = metadata.annotations.get(super::plan::ENTRIES).map(str::to_owned);
            Ok(Secret { meta: metadata.into_meta(interner)?, entries: data.len(), said })
        }

        fn meta(&self) -> &Meta {
            &self.meta
        }
    }
}

/// The plan. Pure.
mod plan {
    use super::model::Secret;

    /// The annotation that counts the entries.
    pub const ENTRIES: &str = "example.com/entries";

    /// The new value of the annotation; `None` where it is right.
    pub fn plan(map: &Secret) -> Option<String> {
        let count = map.entries.to_string();
        (map.said.as_ref() != Some(&count)).then_some(count)
    }
}

/// The shell.
mod controller {
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use serde_json::json;
    use windlass::engine::controller::{Executed, Settled};
    use windlass::engine::driver::Driver;
    use windlass::engine::entry::ControllerEntry;
    use windlass::engine::entry::Requests;
    use windlass::engine::setup::Setup;
    use windlass::engine::{Context, Controller, Worker};
    use windlass::model::Record;
    use windlass::runtime::request::PatchType;

    use super::model::Secret;
    use super::plan;

    pub static ENTRY: ControllerEntry = ControllerEntry {
        name: "secret-controller",
        aliases: &[],
        kind: Secret::RESOURCE,
        objects: "Secrets",
        flag: "concurrent-secret-syncs",
        workers: 1,
        queue: "secret",
        component: "secret-controller",
        watches: &[Secret::RESOURCE],
        stale_skips: None,
        is_on_by_default: true,
        is_upstream: false,
        requests: Requests::AS_CONFIGURED,
        install: |setup: &mut Setup| -> Box<dyn Worker> {
            let controller = Arc::new(Secrets { context: setup.context().clone() });
            Box::new(Driver::new(controller, &ENTRY, setup))
        },
    };

    struct Secrets {
        context: Arc<Context>,
    }

    impl Controller for Secrets {
        type Object = Secret;
        type Status = ();
        type Observed<'a> = &'a Secret;
        type Plan = Option<String>;
        type Outcome = ();

        fn in_scope(&self, map: &Secret) -> bool {
            self.context.settings().scope.selects(&map.meta)
        }

        fn observe<'a>(&self, map: &'a Secret, _: bool) -> &'a Secret {
            map
        }

        fn plan(&self, map: &&Secret) -> Option<String> {
            plan::plan(map)
        }

        fn execute<'a>(
            &'a self,
            map: &'a Secret,
            _: &'a &Secret,
            plan: &'a Option<String>,
        ) -> BoxFuture<'a, Executed<()>> {
            Box::pin(async move {
                let Some(count) = plan else { return Executed::new((), None) };
                let body = json!({"metadata": {"annotations": {plan::ENTRIES: count}}});
                let what = || format!("counting the entries of {}", map.meta.key);
                let path = Secret::RESOURCE.path_of(&map.meta.key);
                let written = self.context.patch(map, what, &path, PatchType::Merge, &body).await;
                let written =
                    written.map(|version| self.context.expect_write(map, Secret::RESOURCE, version));
                Executed::new((), written.err())
            })
        }

        fn settle(&self, _: &&Secret, _: &Option<String>, _: &Executed<()>) -> Settled<()> {
            Settled::default()
        }

        fn status<'a>(&self, _: &'a Secret) -> &'a () {
            &()
        }
    }
}

/// The daemon's own controllers and this one.
pub fn registry() -> Registry {
    own::standard().with_kind(KindEntry::of::<model::Secret>(99)).with_controller(&controller::ENTRY)
}
