//! The list in a terminal: reads it again and again, and takes keys.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ratatui::{
    style::{Modifier, Style},
    text::Line,
    widgets::Paragraph,
};
use tokio::time::Instant;
use windlass_terminal::screen::{self, Screen};

use super::census::{self, Census, Chosen};
use super::table::{self, Look};
use super::view::{Frame, View, Wish};
use crate::api::Api;
use crate::exit::{CommandError, Exit};
use crate::explain;
use crate::output::Output;
use crate::target::WorkloadKey;

/// The shortest pause between two reads.
const PAUSE: Duration = Duration::from_secs(3);

/// How much longer than a read the pause after it is: a list of a large cluster costs its API server much.
const SHARE: u32 = 10;

/// The note about what could not be read.
pub fn note(missing: &str) -> String {
    format!("note: {missing}: the list is incomplete, or lacks reasons")
}

/// The result of a read.
enum Reading {
    List(Result<Census, CommandError>),
    Explanation(WorkloadKey, Result<Option<String>, CommandError>),
}

/// Shows the list until the user leaves. It stays in the terminal as it was last.
///
/// # Errors
/// When the first list cannot be read, or the terminal cannot be used.
pub async fn run(
    api: &Api,
    chosen: Chosen<'_>,
    look: Look,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let mut view = View::new(look);
    // An error is reported as without a terminal.
    let started = Instant::now();
    take(&mut view, Reading::List(Ok(census::take(api, chosen).await?)));
    let mut next = Instant::now() + pause(started.elapsed());
    let mut screen = Screen::open().map_err(CommandError::Terminal)?;
    let colour = look.style.colour;
    let left = loop {
        draw(&mut screen, &mut view, colour)?;
        let explained = view.explains().cloned();
        let mut reading: Pin<Box<dyn Future<Output = Reading> + '_>> = match explained {
            Some(key) => Box::pin(async move {
                let text = explain::one(api, &key).await;
                Reading::Explanation(key, text)
            }),
            None => Box::pin(async { Reading::List(census::take(api, chosen).await) }),
        };
        let mut started = None;
        let wish = loop {
            tokio::select! {
                key = screen.key() => {
                    let (_, height) = screen.size();
                    match view.press(key, height) {
                        Wish::Nothing => draw(&mut screen, &mut view, colour)?,
                        wish => break wish,
                    }
                }
                () = tokio::time::sleep_until(next), if started.is_none() => started = Some(Instant::now()),
                read = &mut reading, if started.is_some() => {
                    take(&mut view, read);
                    next = Instant::now() + pause(started.map_or(Duration::ZERO, |started| started.elapsed()));
                    break Wish::Nothing;
                }
            }
        };
        match wish {
            Wish::Nothing => {}
            Wish::Read => next = Instant::now(),
            Wish::Leave => break Exit::Success,
            Wish::Interrupt => break Exit::Interrupted,
        }
    };
    let (width, _) = screen.size();
    drop(screen);
    view.notes().iter().for_each(|note| output.note(note));
    output.text(&view.last(Some(width)))?;
    Ok(if view.notes().is_empty() { left } else { left.worse(Exit::Error) })
}

fn pause(read: Duration) -> Duration {
    (read * SHARE).max(PAUSE)
}

/// Takes what was read in, or says why nothing could be.
fn take(view: &mut View, read: Reading) {
    match read {
        Reading::List(Ok(Census { mut workloads, unreadable })) => {
            table::worst_first(&mut workloads);
            view.list(workloads, unreadable.iter().map(|missing| note(missing)).collect());
        }
        Reading::Explanation(key, Ok(Some(text))) => view.explain(&key, text),
        Reading::Explanation(key, Ok(None)) => view.explain(&key, format!("{} is gone", key.described())),
        Reading::List(Err(error)) | Reading::Explanation(_, Err(error)) => {
            view.fail(format!("{error}: this is what was read before"));
        }
    }
}

fn draw(screen: &mut Screen, view: &mut View, colour: bool) -> Result<(), CommandError> {
    let (width, height) = screen.size();
    let Frame { rows, chosen } = view.frame(width, height);
    let line = |(at, row)| {
        let line: Line<'_> = screen::line(row, colour);
        match chosen.contains(&at) {
            true => line.style(Style::new().add_modifier(Modifier::REVERSED)),
            false => line,
        }
    };
    let lines: Vec<Line<'_>> = rows.iter().enumerate().map(line).collect();
    let drawn = screen.terminal.draw(|frame| frame.render_widget(Paragraph::new(lines), frame.area()));
    drawn.map(drop).map_err(CommandError::Terminal)
}
