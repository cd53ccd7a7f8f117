"""Predictions beside published measurements: tables of training runs, predicted row by row and scored by source."""
