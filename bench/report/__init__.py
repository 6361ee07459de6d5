"""Result lines to a report in Markdown with charts, and the goals beside what was measured."""
