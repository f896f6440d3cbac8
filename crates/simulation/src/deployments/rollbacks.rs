//! S7: a rollback to the previous revision restores the template before the current one, also where the current one
//! has no ReplicaSet yet.

use std::collections::BTreeMap;
use std::time::Duration;

use super::actors::Actors;
use super::objects::objects;
use super::server::Server;
use crate::engine::breach::Breach;
use crate::engine::objects::{Picture, text};

/// How long a rollback takes: one write.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Changes the image of every Deployment while it is paused, and requests a rollback to the previous revision.
///
/// # Errors
/// When the image differs from the one before.
pub async fn restore_the_previous_template(server: &Server, actors: &Actors) -> Result<(), Breach> {
    let before = server.picture();
    actors.pause(true).await;
    actors.images("skipped").await;
    actors.roll_back_all().await;
    actors.pause(false).await;
    tokio::time::sleep(AT_ONCE).await;
    let after = server.picture();
    let (before, after) = (images(&before), images(&after));
    match before.iter().find(|(name, image)| after.get(*name) != Some(image)) {
        Some((name, image)) if !server.is_over() => {
            let other = after.get(name);
            Err(Breach::new("S7", format!("{name} was rolled back to {image}, and has {other:?}")))
        }
        _ => Ok(()),
    }
}

fn images(picture: &Picture) -> BTreeMap<&str, &str> {
    let image = |deployment| text(deployment, "/spec/template/spec/containers/0/image");
    objects(picture, "deployments").map(|d| (text(d, "/metadata/name"), image(d))).collect()
}
