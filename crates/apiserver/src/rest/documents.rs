//! Documents about the server: discovery, health and OpenAPI.

use bytes::Bytes;

use super::reply::{Content, Reply};
use crate::kinds::Subresource;
use crate::negotiate::Form;
use crate::registry::Registry;
use crate::request::Document;
use crate::status::Failure;
use crate::{discovery, openapi};

pub(super) fn reply(registry: &Registry, document: &Document, form: Form) -> Result<Reply, Failure> {
    let value = match document {
        Document::Health { check, verbose: true } => {
            return Ok(Reply::plain(format!("[+]ping ok\n{check} check passed\n")));
        }
        Document::Health { .. } => return Ok(Reply::plain("ok".to_owned())),
        Document::Paths => discovery::paths(registry),
        Document::Version => discovery::version(),
        Document::CoreVersions if form == Form::AggregatedDiscovery => discovery::aggregated(registry, true),
        Document::Groups if form == Form::AggregatedDiscovery => discovery::aggregated(registry, false),
        Document::CoreVersions => discovery::core_versions(),
        Document::Groups => discovery::groups(registry),
        Document::GroupsWithMetrics => {
            let aggregated = form == Form::AggregatedDiscovery;
            let all =
                if aggregated { discovery::aggregated(registry, false) } else { discovery::groups(registry) };
            discovery::with_metrics(all)
        }
        Document::Group(group) => discovery::group(registry, group).ok_or_else(Failure::unknown_path)?,
        Document::Resources(group, version) => {
            discovery::resources(registry, group, version).ok_or_else(Failure::unknown_path)?
        }
        Document::OpenApiV2 if form == Form::Protobuf => {
            return Ok(Reply {
                code: 200,
                content_type: openapi::V2_PROTOBUF,
                content: Content::Text(Bytes::from_static(openapi::V2_EMPTY)),
                warnings: Vec::new(),
                etag: None,
                is_premature: false,
            });
        }
        Document::OpenApiV2 => openapi::v2(),
        Document::OpenApiIndex => {
            let groups = registry.groups();
            let pairs = groups.iter().flat_map(|(group, versions)| versions.iter().map(|one| (*group, *one)));
            let mut index = openapi::index(&pairs.collect::<Vec<_>>());
            openapi::custom::rehash(&mut index, registry);
            index
        }
        Document::OpenApi(group, version) => {
            let rows: Vec<_> = registry.of_group(group, version).collect();
            if rows.is_empty() {
                return Err(Failure::unknown_path());
            }
            let subresources: Vec<Vec<&str>> = rows
                .iter()
                .map(|row| {
                    let patched = [Subresource::Status, Subresource::Scale];
                    patched.into_iter().filter(|sub| row.has(*sub)).map(Subresource::name).collect()
                })
                .collect();
            let resources: Vec<openapi::Resource<'_>> = rows
                .iter()
                .zip(&subresources)
                .map(|(row, subresources)| openapi::Resource {
                    kind: row.kind,
                    plural: row.plural,
                    namespaced: row.namespaced,
                    subresources,
                })
                .collect();
            let mut document = openapi::document(group, version, &resources);
            openapi::custom::add(&mut document, &rows);
            document
        }
    };
    Ok(Reply { content_type: form.content_type(), ..Reply::value(200, &value) })
}
