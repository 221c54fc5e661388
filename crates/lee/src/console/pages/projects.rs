//! Projects: the list, and one with its history, volumes and projects in it.

use super::volumes::history;
use crate::console::html::{Side, facts, of_limit, quota, share, table, text, to};
use crate::console::visit::{Made, Visit, page};
use crate::{size, when};
use leeward_volume::admin::{ProjectDetails, ProjectInfo, ProjectList, ProjectShow, ProjectVolume, Sampled};
use maud::{Markup, html};

/// The list.
pub fn list(visit: &Visit<'_>) -> Made {
    let projects = visit.ask(&ProjectList)?.projects;
    let empty = match visit.is_operator() {
        true => "There is no project yet: `lee project create NAME --at DIR --owner USER:GROUP` makes one.",
        false => "You look after no project.",
    };
    page("Projects", "/projects", html! { (projects_table(&projects, empty)) })
}

fn projects_table(projects: &[ProjectInfo], empty: &str) -> Markup {
    let columns = [
        ("Project", Side::Left),
        ("Owner", Side::Left),
        ("Place", Side::Left),
        ("Used", Side::Right),
        ("Budget", Side::Right),
        ("Full", Side::Right),
        ("Volumes", Side::Right),
    ];
    let row = |project: &ProjectInfo| {
        vec![
            to("/project", &[("name", &project.name)], &project.name),
            text(&project.owner),
            text(&project.at),
            text(size::bytes(project.used_bytes)),
            text(size::bytes_limit(project.bytes)),
            share(project.used_bytes, project.bytes),
            of_limit(project.volumes, project.volumes_max.into()),
        ]
    };
    let rows: Vec<Vec<Markup>> = projects.iter().map(row).collect();
    table(&size::counted(projects.len() as u64, "project", "projects"), &columns, &rows, empty)
}

/// One project.
pub fn show(visit: &Visit<'_>) -> Made {
    let name = visit.form().get("name").to_owned();
    let ProjectDetails { project, volume_list, projects } = visit.ask(&ProjectShow { name: name.clone() })?;
    let columns = [("Volume", Side::Left), ("Used", Side::Right), ("Files", Side::Right)];
    let row = |volume: &ProjectVolume| {
        vec![
            to("/volume", &[("name", &volume.name)], &volume.name),
            text(size::bytes(volume.used_bytes)),
            text(size::count(volume.used_files)),
        ]
    };
    let rows: Vec<Vec<Markup>> = volume_list.iter().map(row).collect();
    let body = html! {
        (facts(&[
            ("Owner", text(&project.owner)),
            ("Place", text(&project.at)),
            ("Used", text(size::bytes(project.used_bytes))),
            ("Budget", quota(project.used_bytes, project.bytes)),
            ("Files", of_limit(project.used_files, project.files)),
            ("Pool of new volumes", text(&project.pool)),
            ("Made", text(when::utc(project.created_secs))),
        ]))
        @if let Some(parent) = &project.parent { p { "In project " (to("/project", &[("name", parent)], parent)) } }
        h2 { "History" }
        (history(visit, (Sampled::Project, project.id.into(), &project.name)))
        h2 { "Volumes" }
        (table("Volumes in it", &columns, &rows, "None: `lee volume create NAME` makes one below its place."))
        @if !projects.is_empty() {
            h2 { "Projects in it" }
            ul { @for inner in &projects { li { (to("/project", &[("name", inner)], inner)) } } }
        }
    };
    page(format!("Project {name}"), "/projects", body)
}
