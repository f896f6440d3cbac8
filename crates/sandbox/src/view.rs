//! The live view in a terminal. [`board`] computes the rows; this file draws them and reads keys.

pub mod board;

use std::{io, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::board::{Board, Tone};
use super::cluster::{Cluster, ObjectChange};
use super::event_lines::plain;

/// The shortest time between two draws of the screen.
const FRAME: Duration = Duration::from_millis(100);

/// Shows the cluster until the user quits or `shutdown`, with `heading` at the top. The terminal is restored, also
/// after errors and panics.
pub async fn show(
    mut changes: BoxStream<'static, ObjectChange>,
    heading: &[String],
    colour: bool,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let mut terminal = RawTerminal::new()?;
    let mut keys = keys(shutdown.child_token());
    let mut cluster = Cluster::default();
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut stale = true;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                Some(Key::Redraw) => stale = true,
            },
            Some(change) = changes.next() => {
                cluster.observe(change);
                stale = true;
            }
            _ = frames.tick() => if stale {
                terminal.0.draw(|frame| draw(frame, &cluster, heading, colour))?;
                stale = false;
            },
        }
    }
}

/// The terminal in raw mode on its alternate screen, restored on drop. ratatui's own panic hook does the same for
/// panics, before their message is printed.
struct RawTerminal(DefaultTerminal);

impl RawTerminal {
    fn new() -> io::Result<Self> {
        ratatui::try_init().map(RawTerminal)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // An error cannot be handled here.
        let _ = ratatui::try_restore();
    }
}

enum Key {
    Quit,
    Redraw,
}

/// Reads keys on a thread of its own, since reading the terminal blocks. The thread ends within a frame after `stop` or
/// the end of the receiver.
fn keys(stop: CancellationToken) -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !stop.is_cancelled() && !sender.is_closed() {
            let key = match event::poll(FRAME)
                .and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) })
            {
                Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    let control_c =
                        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    (control_c || key.code == KeyCode::Char('q')).then_some(Key::Quit)
                }
                Ok(Some(Event::Resize(..))) => Some(Key::Redraw),
                Ok(_) => None,
                Err(_) => Some(Key::Quit),
            };
            if let Some(key) = key
                && sender.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn draw(frame: &mut Frame<'_>, cluster: &Cluster, heading: &[String], colour: bool) {
    let area = frame.area();
    let heading: Vec<Line<'_>> = heading.iter().map(|line| Line::from(line.as_str())).collect();
    let layout = Layout::vertical([
        Constraint::Length(u16::try_from(heading.len()).unwrap_or(u16::MAX).saturating_add(1)),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom, foot] = layout.areas(area);
    frame.render_widget(Paragraph::new(heading), top);
    let board = Board { width: usize::from(area.width) };
    let workloads = board.workloads(cluster, usize::from(middle.height));
    frame.render_widget(Paragraph::new(styled(workloads, colour)), middle);
    let events = board.events(cluster, usize::from(bottom.height));
    frame.render_widget(Paragraph::new(styled(events, colour)), bottom);
    frame.render_widget(Paragraph::new("q: quit"), foot);
}

fn styled(rows: Vec<board::Row>, colour: bool) -> Vec<Line<'static>> {
    let style = |tone: Tone| match tone {
        Tone::Heading => Style::new().add_modifier(Modifier::BOLD),
        _ if !colour => Style::new(),
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Waiting => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    };
    let row = |row: board::Row| {
        Line::from(
            row.into_iter().map(|(text, tone)| Span::styled(plain(&text), style(tone))).collect::<Vec<_>>(),
        )
    };
    rows.into_iter().map(row).collect()
}
