"""Material for a class: slides, worksheets, exams, assignments, lesson copies, the model on one page."""
