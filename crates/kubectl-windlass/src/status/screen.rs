//! The live tree in a terminal.

use std::time::Duration;

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    style::{Color, Style as Look},
    text::{Line, Span},
    widgets::Paragraph,
};
use tokio::sync::mpsc;

use super::View;
use super::follower::Follower;
use super::tree;
use crate::exit::CommandError;
use crate::layout::{Row, Tone, indented};
use crate::output::Style;

/// How often keys are looked for.
const KEYS: Duration = Duration::from_millis(100);

/// A key that changes what is shown.
enum Key {
    Quit,
    Up,
    Down,
    Redraw,
}

/// The terminal in raw mode on its alternate screen, restored on drop. ratatui's panic hook does the same for panics,
/// before their message is printed.
pub struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::Receiver<Key>,
    style: Style,
    top: u16,
    rows: Vec<Row>,
    is_stale: bool,
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error cannot be handled here.
        let _ = ratatui::try_restore();
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When it refuses raw mode.
    pub fn open(style: Style) -> Result<Self, CommandError> {
        let terminal = ratatui::try_init().map_err(CommandError::Terminal)?;
        let (sender, keys) = mpsc::channel(16);
        std::thread::spawn(move || read_keys(&sender));
        Ok(Screen { terminal, keys, style, top: 0, rows: Vec::new(), is_stale: true })
    }

    /// Draws the trees if there is news and they have changed.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn draw(&mut self, followers: &[Follower], is_news: bool) -> Result<(), CommandError> {
        if !is_news && !self.is_stale {
            return Ok(());
        }
        let width = self.terminal.size().map_or(80, |size| usize::from(size.width));
        let unreadable = followers.iter().filter_map(Follower::assessment).flat_map(|assessment| {
            let label = format!("{}/{}", assessment.namespace, assessment.name);
            let missing = assessment.unreadable.iter();
            missing.flat_map(move |why| indented(&format!("{label}: {why}"), Tone::Bad, "", width))
        });
        let assessments = followers.iter().filter_map(Follower::assessment);
        let rows: Vec<Row> = unreadable
            .chain(assessments.flat_map(|assessment| tree::rows(assessment, self.style, Some(width))))
            .chain(
                followers
                    .iter()
                    .filter_map(Follower::lasting_line)
                    .flat_map(|trouble| indented(&trouble, Tone::Bad, "", width)),
            )
            .collect();
        if rows == self.rows && !self.is_stale {
            return Ok(());
        }
        (self.rows, self.is_stale) = (rows, false);
        let colour = self.style.colour;
        let mut lines: Vec<Line<'_>> = self.rows.iter().map(|row| line(row, colour)).collect();
        lines.push(Line::from(""));
        lines.push(Line::from("q: leave (the rollout goes on)"));
        let top = self.top;
        let drawn = self.terminal.draw(|frame| {
            frame.render_widget(Paragraph::new(lines).scroll((top, 0)), frame.area());
        });
        drawn.map(drop).map_err(CommandError::Terminal)
    }

    /// Gives the terminal back; returns the last frame as text.
    pub fn close(self) -> String {
        let line = |row: &Row| {
            let text: String = row.iter().map(|(part, _)| part.as_str()).collect();
            format!("{}\n", text.trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}

/// Resolves when the user quits a live view; never for another one.
pub async fn quit(view: &mut View) -> Result<(), CommandError> {
    let View::Screen(screen) = view else { return std::future::pending().await };
    loop {
        match screen.keys.recv().await {
            Some(Key::Quit) | None => return Ok(()),
            Some(Key::Up) => screen.top = screen.top.saturating_sub(1),
            Some(Key::Down) => {
                let last = u16::try_from(screen.rows.len()).unwrap_or(u16::MAX);
                screen.top = screen.top.saturating_add(1).min(last);
            }
            Some(Key::Redraw) => {}
        }
        // Drawn at the next tick.
        screen.is_stale = true;
    }
}

/// Reads keys on a thread of its own, since reading the terminal blocks.
fn read_keys(keys: &mpsc::Sender<Key>) {
    while !keys.is_closed() {
        let key = match event::poll(KEYS) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    let control_c =
                        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    match key.code {
                        _ if control_c => Key::Quit,
                        KeyCode::Char('q') => Key::Quit,
                        KeyCode::Up => Key::Up,
                        KeyCode::Down => Key::Down,
                        _ => continue,
                    }
                }
                Ok(Event::Resize(..)) => Key::Redraw,
                Ok(_) => continue,
                Err(_) => Key::Quit,
            },
            Err(_) => Key::Quit,
        };
        if keys.blocking_send(key).is_err() {
            return;
        }
    }
}

fn line(row: &Row, colour: bool) -> Line<'static> {
    let look = |tone: Tone| match tone {
        _ if !colour => Look::new(),
        Tone::Plain => Look::new(),
        Tone::Good => Look::new().fg(Color::Green),
        Tone::Waiting => Look::new().fg(Color::Yellow),
        Tone::Bad => Look::new().fg(Color::Red),
    };
    Line::from(row.iter().map(|(text, tone)| Span::styled(text.clone(), look(*tone))).collect::<Vec<_>>())
}
